//! What is printed: one line of JSON for a figure, with the same names as `peers/works.hpp`.

/// One figure.
pub fn figure(work: &str, case: &str, allocator: &str, figure: &str, value: f64) {
    println!(
        "{{\"work\":\"{work}\",\"case\":\"{case}\",\"allocator\":\"{allocator}\",\"figure\":\"{figure}\",\"value\":{value:.4}}}"
    );
}

/// What could not be measured, and why.
pub fn note(work: &str, case: &str, allocator: &str, text: &str) {
    // The first line, without what JSON would have to escape.
    let text: String = text
        .lines()
        .next()
        .unwrap_or_default()
        .chars()
        .filter(|c| !matches!(c, '"' | '\\') && !c.is_control())
        .take(200)
        .collect();
    println!(
        "{{\"work\":\"{work}\",\"case\":\"{case}\",\"allocator\":\"{allocator}\",\"note\":\"{text}\"}}"
    );
}
