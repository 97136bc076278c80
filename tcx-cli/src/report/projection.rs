//! Projects rows on their first two principal components, found by power iteration.

use serde::Serialize;

use super::shades::Shade;

/// The maximum of iterations. Directions that have not separated by then have about the same variance.
const ITERATIONS: usize = 60;
/// A direction that moves less has converged.
const SETTLED: f64 = 1e-9;

/// Rows in the plane.
#[derive(Debug, Serialize)]
pub(crate) struct Projection {
    /// The share of the variance along each axis.
    pub(crate) explained: [f64; 2],
    /// The output that colours the points.
    pub(crate) colored_by: Option<String>,
    pub(crate) points: Vec<Point>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Point {
    pub(crate) id: String,
    pub(crate) x: f64,
    pub(crate) y: f64,
    /// The value of the output that colours the points.
    pub(crate) value: Option<Shade>,
}

/// Projects finite rows of equal length; `None` for too few rows, too short rows, or equal rows.
pub(super) fn project(rows: &[(String, &[f64])]) -> Option<Projection> {
    let (width, count) = (rows.first()?.1.len(), rows.len() as f64);
    if width < 2 || rows.len() < 3 {
        return None;
    }
    let mut mean = vec![0.0; width];
    for (_, row) in rows {
        mean.iter_mut().zip(*row).for_each(|(mean, x)| *mean += x / count);
    }
    let centre = |row: &[f64]| row.iter().zip(&mean).map(|(x, mean)| x - mean).collect();
    let mut centred: Vec<Vec<f64>> = rows.iter().map(|(_, row)| centre(row)).collect();
    let total: f64 = centred.iter().map(|row| dot(row, row)).sum();
    let size: f64 = rows.iter().map(|(_, row)| dot(row, row)).sum();
    // A smaller variance is the rounding error of the mean.
    if !(total.is_finite() && total > size * 1e-24) {
        return None;
    }
    let mut axes = Vec::new();
    for _ in 0..2 {
        let direction = direction(&centred);
        let places: Vec<f64> = centred.iter().map(|row| dot(row, &direction)).collect();
        for (row, place) in centred.iter_mut().zip(&places) {
            row.iter_mut().zip(&direction).for_each(|(x, part)| *x -= place * part);
        }
        axes.push(places);
    }
    let explained = [0, 1].map(|axis: usize| dot(&axes[axis], &axes[axis]) / total);
    let points = rows.iter().enumerate();
    let points =
        points.map(|(at, (id, _))| Point { id: id.clone(), x: axes[0][at], y: axes[1][at], value: None });
    Some(Projection { explained, colored_by: None, points: points.collect() })
}

/// The direction of unit length along which these differ most, the same each time.
fn direction(rows: &[Vec<f64>]) -> Vec<f64> {
    // The longest row is hardly ever at right angles to it.
    let longest = rows.iter().max_by(|a, b| dot(a, a).total_cmp(&dot(b, b)));
    let mut found = unit(longest.cloned().unwrap_or_default());
    for _ in 0..ITERATIONS {
        let mut next = vec![0.0; found.len()];
        for row in rows {
            let place = dot(row, &found);
            next.iter_mut().zip(row).for_each(|(sum, x)| *sum += place * x);
        }
        let next = unit(next);
        let moved = 1.0 - dot(&next, &found).abs();
        found = next;
        if moved < SETTLED {
            break;
        }
    }
    let largest = found.iter().copied().max_by(|a, b| a.abs().total_cmp(&b.abs())).unwrap_or(1.0);
    found.iter().map(|part| part * largest.signum()).collect()
}

fn unit(vector: Vec<f64>) -> Vec<f64> {
    let length = dot(&vector, &vector).sqrt();
    if length > 0.0 { vector.iter().map(|part| part / length).collect() } else { vector }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_in_a_plane_are_seen_from_above() {
        // Ten times as long along (1, 1, 0) as along (0, 0, 1).
        let rows: Vec<Vec<f64>> = (0..200)
            .map(|i| {
                let (along, across) = (f64::from(i % 20) - 9.5, f64::from(i / 20) / 10.0);
                vec![along + 7.0, along - 3.0, across]
            })
            .collect();
        let named: Vec<(String, &[f64])> = rows.iter().map(|row| (String::new(), row.as_slice())).collect();
        let Projection { explained, points, .. } = project(&named).unwrap();
        assert!(explained[0] > 0.99 && explained[1] > 0.0, "{explained:?}");
        assert!((explained[0] + explained[1] - 1.0).abs() < 1e-6, "{explained:?}");
        assert!((points[1].x - points[0].x - 2_f64.sqrt()).abs() < 1e-6);
        assert!(((points[20].y - points[0].y).abs() - 0.1).abs() < 1e-6);
    }

    #[test]
    fn rows_that_do_not_differ_have_no_projection() {
        let row = [1.0, 2.0];
        assert!(project(&vec![(String::new(), &row[..]); 9]).is_none());
        assert!(project(&[]).is_none());
    }
}
