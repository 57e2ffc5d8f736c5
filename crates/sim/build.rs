//! Links `chance/chance.c` into the binary, and into nothing else.

fn main() {
    println!("cargo:rerun-if-changed=chance/chance.c");
    for object in cc::Build::new()
        .file("chance/chance.c")
        .warnings_into_errors(true)
        .compile_intermediates()
    {
        println!("cargo:rustc-link-arg-bins={}", object.display());
    }
    // rand looks it up at run time.
    println!("cargo:rustc-link-arg-bins=-Wl,--export-dynamic-symbol=getrandom");
}
