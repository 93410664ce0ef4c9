use anyhow::Result;
use super::synthetic::Tree;
pub fn run(words: &[&str]) -> Result<()> {
    let [path, d, f, e] = words else { anyhow::bail!("args") };
    Tree { directories: d.parse()?, files: f.parse()?, extents: e.parse()? }.make(std::path::Path::new(path))
}
