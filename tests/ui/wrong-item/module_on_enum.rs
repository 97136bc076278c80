use tcx::cached_module;

#[cached_module(id = "backbone_v1")]
pub enum Backbone {
    Small,
    Large,
}

fn main() {}
