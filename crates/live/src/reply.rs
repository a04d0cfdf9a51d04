//! The reply to a request, as bytes.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::Source;
use crate::protocol::Request;

/// The reply: `ok` and the body, or an error.
pub(crate) fn to(request: Request, source: &dyn Source) -> Vec<u8> {
    match catch_unwind(AssertUnwindSafe(|| body(request, source))) {
        Ok(Ok(body)) => [b"ok\n", body.as_bytes()].concat(),
        Ok(Err(why)) => error(why),
        Err(_) => error("the report could not be made"),
    }
}

/// An error.
pub(crate) fn error(why: &str) -> Vec<u8> {
    format!("error {why}\n").into_bytes()
}

fn body(request: Request, source: &dyn Source) -> Result<String, &'static str> {
    Ok(match request {
        Request::Dump { format, search } => source.dump(format, search),
        Request::Stats { sites } => source.stats(sites),
        Request::Report => {
            source.write_report();
            String::new()
        }
        Request::Peak => {
            let peak = source
                .peak()
                .ok_or("the peak is watched by `cuguard run` alone")?;
            format!("{peak}\n")
        }
        Request::Trim { device } => format!("{}\n", source.trim(device)),
    })
}
