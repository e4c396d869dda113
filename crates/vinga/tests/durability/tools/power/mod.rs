//! Power cuts: what a node does to its files is recorded while it runs (`trace`), and its folder is made again as a
//! power cut could have left it at any moment (`cut`). Clients that know what they were answered say what must be
//! there (`load`), and what must not (`history`).

pub mod cut;
pub mod history;
pub mod load;
pub mod trace;
