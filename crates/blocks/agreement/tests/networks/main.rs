//! Agreement on who has failed, and on other changes of the view, in clusters whose nodes and network fail in all ways.

mod course;
mod network;

mod arbitrators;
mod failures;
mod growth;
mod heartbeats;
mod leaving;
mod links;
mod reorganizing;
