//! Agreement on who has failed, in clusters whose nodes and network fail in all ways.

mod network;

mod arbitrators;
mod failures;
mod links;
