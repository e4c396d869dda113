//! Addresses as a person writes them: `host`, `host:port`, `[::1]:port`.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;

/// An address with its port; with this one if none is written. Whether the host has such a name is not looked at.
///
/// # Errors
/// A sentence that begins with the address: it has no such form.
pub fn with_port(address: &str, default: u16) -> Result<String, String> {
    let wrong = |what: &str| Err(format!("'{address}': {what}"));
    if address.contains(char::is_whitespace) || address.contains('/') {
        return wrong("no host has such a name");
    }
    // The colons inside of brackets belong to an IPv6 address.
    let (host, port) = match address.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (address, None),
    };
    let is_bracketed = host.starts_with('[') && host.ends_with(']');
    if host.contains(':') && !is_bracketed {
        return wrong(&format!("an IPv6 address stands in brackets: [::1]:{default}"));
    }
    if host.is_empty() || host == "[]" {
        return wrong("the host is missing");
    }
    match port.map(str::parse::<u16>) {
        None => Ok(format!("{host}:{default}")),
        Some(Ok(1..)) => Ok(address.to_owned()),
        Some(Ok(0) | Err(_)) => wrong("a port is a number from 1 to 65535"),
    }
}
