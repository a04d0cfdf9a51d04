//! The pools of cuguard in other processes. A process knows them alone, so it is asked: processes of this user that record
//! have a socket.

use std::time::Duration;

use cuguard_live::{Request, ask_others};
use cuguard_report::phrase::printable;
use serde::Deserialize;

use super::facts::PoolFacts;

/// How long all processes together may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// The reply of a process, as far as it matters here. The audit library knows no pools.
#[derive(Debug, Deserialize)]
struct Reply {
    command: String,
    #[serde(default)]
    pools: Vec<PoolFacts>,
}

/// The pools that hold memory, those that hold most first.
pub(super) fn find() -> Vec<PoolFacts> {
    let replies = ask_others(Request::Stats { sites: 0 }, PATIENCE);
    let pools = replies
        .iter()
        .flat_map(|(process, texts)| texts.iter().flat_map(|text| read(*process, text)));
    let mut pools: Vec<_> = pools.filter(|pool| pool.held_bytes != 0).collect();
    pools.sort_by_key(|pool| {
        (
            std::cmp::Reverse(pool.held_bytes),
            pool.process,
            pool.number,
        )
    });
    pools
}

/// The pools of one reply; none of one that cannot be read.
fn read(process: u32, text: &str) -> Vec<PoolFacts> {
    let Ok(reply) = serde_json::from_str::<Reply>(text) else {
        return Vec::new();
    };
    let command = printable(&reply.command).into_owned();
    let mut pools = reply.pools;
    for pool in &mut pools {
        pool.process = process;
        pool.command.clone_from(&command);
        let label = pool.label.take();
        pool.label = label.map(|label| printable(&label).into_owned());
    }
    pools
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn a_reply_is_read() {
        let pool = r#"{"number":2,"label":"a\u0007","of_context":false,"held_bytes":8,"used_bytes":3,"idle_bytes":5,
            "cached_by_threads_bytes":0,"cached_bytes":5,"unmapped_bytes":0,"page_count":4,"pinned_page_count":1,"context":1,"device":0}"#;
        let text = format!(r#"{{"version":1,"command":"train","pools":[{pool}]}}"#);
        let pools = read(7, &text);
        assert_eq!(pools.len(), 1);
        assert_eq!((pools[0].process, pools[0].command.as_str()), (7, "train"));
        assert_eq!(pools[0].label.as_deref(), Some(r"a\u{7}"));
        assert_eq!((pools[0].idle_bytes, pools[0].pinned_page_count), (5, 1));
        assert!(read(7, r#"{"command":"audited"}"#).is_empty());
        assert!(read(7, "").is_empty());
    }
}
