use tcx::{CacheableOutput, Extractor};

#[derive(CacheableOutput)]
pub enum Label {
    Cat,
    Dog,
}

#[derive(CacheableOutput)]
pub struct Features {
    label: Label,
}

pub struct Classifier;

impl Extractor for Classifier {
    type Input = Vec<String>;
    type Output = Label;

    fn forward(&self, _: &Vec<String>) -> tcx::Result<Label> {
        Ok(Label::Cat)
    }
}

fn main() {}
