use tch::{Device, nn};
use tcx::Frozen;

pub fn used() -> tcx::Result<()> {
    let mut kept = None;
    let fc = Frozen::load(Device::Cpu, "fc.safetensors", |p| {
        kept = Some(p);
        nn::linear(p, 4, 2, Default::default())
    })?;
    drop(fc);
    Ok(())
}

fn main() {}
