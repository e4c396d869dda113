//! Whether a management node is alive: it is greeted as by a data node, which asks nothing.

use crate::server::ManagementSettings;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use vinga_runtime::exchange::{Exchange, frame};
use vinga_wire::handshake::Refusal;
use vinga_wire::{Frame, SignalNumber, cold};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Asks the management node at an address whether it is alive. The settings are its own.
///
/// # Errors
/// Why there was no answer, or that it is another one's.
pub fn probe(settings: &ManagementSettings, address: SocketAddr) -> Result<(), String> {
    let (first, _) = settings.data_nodes.first().ok_or("there is no data node")?;
    let hello = settings.hello(*first);
    let until = Instant::now() + PATIENCE;
    let ask = || -> Result<Vec<u8>, String> {
        let mut exchange = Exchange::connect(address, until).map_err(|why| why.to_string())?;
        if let Some(key) = &settings.key {
            exchange.prove(key, *first, until).map_err(|why| why.to_string())?;
        }
        let request = frame(SignalNumber::ArbitratorHelloRequest, *first, |w| cold::write(w, &hello));
        exchange.send(&request, until).map_err(|why| why.to_string())?;
        exchange.receive(until).map_err(|why| why.to_string())
    };
    let answer = ask()?;
    let answer = Frame::first(&answer).ok().flatten().ok_or("its answer can't be read")?;
    match answer.signal() {
        Some(SignalNumber::ArbitratorHelloConfirm) => Ok(()),
        Some(SignalNumber::ArbitratorHelloRefuse) => {
            let refusal = cold::read(&answer);
            Err(refusal.map_or_else(|| "it refuses".to_string(), |refusal: Refusal| refusal.detail))
        }
        _ => Err("something else listens there".to_string()),
    }
}
