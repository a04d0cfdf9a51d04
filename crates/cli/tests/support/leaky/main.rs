//! A program that leaks.

fn main() {
    leaky_crate::allocate(5 << 20);
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    println!("{}", arguments.join(" "));
    std::process::exit(7);
}
