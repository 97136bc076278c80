//! Limits the depth of a query. DataFusion walks its trees by recursion, and not all of it checks the stack: a query that is
//! too deep would overflow it and end the process.

use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

use crate::error::{Error, Result};

/// The maximum of chained words. Half of them can be operators, and each operator is one level of a tree.
const MOST: usize = 1000;

/// Rejects a query that is too deep. Chains end at a comma, and the depth of parentheses is added to that of the text around
/// them.
pub(crate) fn check(sql: &str) -> Result<()> {
    // The parser reports text that has no tokens.
    let tokens = Tokenizer::new(&GenericDialect {}, sql).tokenize().unwrap_or_default();
    let (mut chains, mut deep) = (vec![0], 0);
    for token in tokens {
        match token {
            Token::Whitespace(_) => continue,
            Token::LParen | Token::LBracket | Token::LBrace => chains.push(0),
            Token::RParen | Token::RBracket | Token::RBrace if chains.len() > 1 => {
                deep -= chains.pop().unwrap_or(0);
            }
            Token::Comma => deep -= chains.last_mut().map_or(0, std::mem::take),
            _ => {}
        }
        if let Some(chain) = chains.last_mut() {
            *chain += 1;
            deep += 1;
        }
        if deep > MOST {
            return Err(Error::Query(format!(
                "the query chains more than {MOST} words; write `in (…)` instead of many `or`s, or split the query"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_not_deep() {
        let list = "1, ".repeat(100_000);
        assert!(check(&format!("select * from m_v1 where id in ({list}1) or (score + 1) * 2 > 3")).is_ok());
        assert!(check(&format!("select {}1", "f(1, 2), g[1], ".repeat(10_000))).is_ok());
    }

    #[test]
    fn chains_are_deep_wherever_they_stand() {
        for sql in [
            format!("select 1{}", " + 1".repeat(500)),
            format!("select 1{}", " + f(1, 2)".repeat(500)),
            format!("select {}1", "(1 + 1 + ".repeat(250)),
            format!("select a, (b{})", "[1]".repeat(1000)),
        ] {
            assert!(check(&sql).unwrap_err().to_string().contains("more than 1000 words"), "{sql}");
        }
        assert!(check(&format!("select 1{}", " + 1".repeat(499))).is_ok());
        assert!(check(")))]]").is_ok());
    }
}
