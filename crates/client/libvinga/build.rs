//! The name that programs remember the shared library by: `libvinga.so.N`, where `N` changes when programs have to be
//! compiled anew.

fn main() {
    let version = std::env::var("CARGO_PKG_VERSION_MAJOR").expect("cargo sets it");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libvinga.so.{version}");
    println!("cargo::rerun-if-changed=build.rs");
}
