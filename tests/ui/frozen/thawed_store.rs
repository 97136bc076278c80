use tch::{Device, nn};
use tcx::Frozen;

pub fn used() -> tcx::Result<()> {
    let mut variables = nn::VarStore::new(Device::Cpu);
    let fc = Frozen::build(variables, |p| nn::linear(p, 4, 2, Default::default()))?;
    variables.unfreeze();
    drop(fc);
    Ok(())
}

fn main() {}
