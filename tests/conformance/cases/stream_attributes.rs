//! Identity and attributes of streams.

use crate::case::Case;
use crate::driver::CUresult as Code;
use crate::driver::*;
use crate::tools::*;
use launch_attribute_id::*;

cases! {"stream_attributes":
    ids,
    device_and_context,
    synchronization_policy_of_a_stream,
    memory_synchronization_domain,
    access_policy_window,
    priority_as_attribute,
    copied,
    unknown,
}

/// Every stream has an id of its own.
fn ids(c: &Case) {
    primary(c);
    let id = |stream| {
        let mut id = u64::MAX;
        c.ok("cuStreamGetId", cuStreamGetId(stream, &mut id));
        id
    };
    let (first, second) = (independent(c), independent(c));
    c.yes("two streams", id(first) != id(second));
    c.same_handle(
        "the default stream",
        id(CUstream::NULL),
        id(CUstream::LEGACY),
    );
    c.yes(
        "the default stream and another",
        id(CUstream::NULL) != id(first),
    );
    c.invalid("null", cuStreamGetId(first, std::ptr::null_mut()));
}

/// The device and the context of a stream.
fn device_and_context(c: &Case) {
    let context = primary(c);
    let stream = independent(c);
    let mut device = -1;
    c.ok("cuStreamGetDevice", cuStreamGetDevice(stream, &mut device));
    c.same("the device", device, 0);
    let (mut own, mut green) = (CUcontext::NULL, CUgreenCtx(7));
    let result = cuStreamGetCtx_v2(stream, &mut own, &mut green);
    c.ok("cuStreamGetCtx_v2", result);
    c.same_handle("the context", own, context);
    c.same("the green context", green, CUgreenCtx::NULL);
}

/// Reads an attribute, or returns the error.
fn get(stream: CUstream, which: u32) -> Result<CUstreamAttrValue, CUresult> {
    let mut value = CUstreamAttrValue { pad: [0; 64] };
    let result = cuStreamGetAttribute(stream, which, &mut value);
    result.is_success().then_some(value).ok_or(result)
}

/// A value whose first bytes are a number.
fn number(value: u32) -> CUstreamAttrValue {
    let mut attribute = CUstreamAttrValue { pad: [0; 64] };
    attribute.syncPolicy = value;
    attribute
}

/// The number at the start of an attribute.
fn read_number(stream: CUstream, which: u32) -> Result<u32, CUresult> {
    // SAFETY: any bytes are a number.
    get(stream, which).map(|value| unsafe { value.syncPolicy })
}

/// How host threads wait.
fn synchronization_policy_of_a_stream(c: &Case) {
    primary(c);
    let stream = independent(c);
    let first = read_number(stream, SYNCHRONIZATION_POLICY);
    c.same("at first", first, Ok(u32::MAX));
    for policy in 1..=4 {
        let result = cuStreamSetAttribute(stream, SYNCHRONIZATION_POLICY, &number(policy));
        c.ok(format_args!("set {policy}"), result);
        let now = read_number(stream, SYNCHRONIZATION_POLICY);
        c.same("now", now, Ok(policy));
    }
    for policy in [0, 5, 99] {
        let result = cuStreamSetAttribute(stream, SYNCHRONIZATION_POLICY, &number(policy));
        c.invalid(format_args!("set {policy}"), result);
    }
    let now = read_number(stream, SYNCHRONIZATION_POLICY);
    c.same("after errors", now, Ok(4));
}

/// The domain of memory synchronization is the default one or the remote one.
fn memory_synchronization_domain(c: &Case) {
    primary(c);
    let stream = independent(c);
    c.same("at first", read_number(stream, MEM_SYNC_DOMAIN), Ok(0));
    let result = cuStreamSetAttribute(stream, MEM_SYNC_DOMAIN, &number(1));
    c.ok("set 1", result);
    c.same("now", read_number(stream, MEM_SYNC_DOMAIN), Ok(1));
    let result = cuStreamSetAttribute(stream, MEM_SYNC_DOMAIN, &number(2));
    c.invalid("set 2", result);
    let map = get(stream, MEM_SYNC_DOMAIN_MAP);
    // SAFETY: it is the attribute of this kind.
    let map = map.map(|value| unsafe { value.memSyncDomainMap });
    let map = map.map(|map| (map.default_, map.remote));
    c.same("the map at first", map, Ok((0, 1)));
}

/// A window of addresses that stay in the cache.
fn access_policy_window(c: &Case) {
    primary(c);
    let stream = independent(c);
    let ptr = alloc(c, MIB);
    let mut value = CUstreamAttrValue { pad: [0; 64] };
    let window = CUaccessPolicyWindow {
        base_ptr: ptr as *mut c_void,
        num_bytes: MIB,
        hitRatio: 0.5,
        hitProp: 2,
        missProp: 1,
    };
    value.accessPolicyWindow = window;
    let result = cuStreamSetAttribute(stream, ACCESS_POLICY_WINDOW, &value);
    c.ok("set", result);
    let now = get(stream, ACCESS_POLICY_WINDOW);
    // SAFETY: it is the attribute of this kind.
    let now = now.map(|value| unsafe { value.accessPolicyWindow });
    let now = now.map(|window| {
        (
            window.base_ptr as u64 - ptr,
            window.num_bytes,
            window.hitProp,
        )
    });
    c.same("now", now, Ok((0, MIB, 2)));
    for (what, wrong) in [
        (
            "ratio 2",
            CUaccessPolicyWindow {
                hitRatio: 2.0,
                ..window
            },
        ),
        (
            "persisting misses",
            CUaccessPolicyWindow {
                missProp: 2,
                ..window
            },
        ),
    ] {
        value.accessPolicyWindow = wrong;
        let result = cuStreamSetAttribute(stream, ACCESS_POLICY_WINDOW, &value);
        c.invalid(what, result);
    }
}

/// The priority is an attribute too.
fn priority_as_attribute(c: &Case) {
    primary(c);
    let stream = independent(c);
    c.same("at first", read_number(stream, PRIORITY), Ok(0));
    let mut value = CUstreamAttrValue { pad: [0; 64] };
    value.priority = -1;
    c.ok("set -1", cuStreamSetAttribute(stream, PRIORITY, &value));
    let mut priority = 7;
    c.ok("get", cuStreamGetPriority(stream, &mut priority));
    c.same("now", priority, -1);
}

/// Attributes are copied from stream to stream.
fn copied(c: &Case) {
    primary(c);
    let (from, to) = (independent(c), independent(c));
    let result = cuStreamSetAttribute(from, SYNCHRONIZATION_POLICY, &number(3));
    c.ok("set", result);
    c.ok("copy", cuStreamCopyAttributes(to, from));
    let now = read_number(to, SYNCHRONIZATION_POLICY);
    c.same("the copy", now, Ok(3));
}

/// Attributes of launches that are not of streams are errors.
fn unknown(c: &Case) {
    primary(c);
    let stream = independent(c);
    let want = Err(Code::INVALID_VALUE);
    for which in [COOPERATIVE, CLUSTER_DIMENSION, PROGRAMMATIC_EVENT, 99] {
        let what = format_args!("get {which}");
        c.same(what, read_number(stream, which), want);
        let result = cuStreamSetAttribute(stream, which, &number(1));
        c.invalid(format_args!("set {which}"), result);
    }
}
