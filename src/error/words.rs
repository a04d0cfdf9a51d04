//! Parts of messages that a format string cannot express.

use cuguard_report::ByteSize;

pub(super) fn host_limit(limit: Option<u64>) -> String {
    limit.map_or_else(String::new, |limit| {
        format!("; this process can have {} at most", ByteSize(limit))
    })
}

pub(super) fn of(subject: &str) -> String {
    match subject {
        "" => String::new(),
        subject => format!(" of {subject}"),
    }
}

pub(super) fn counted(count: usize, unit: &str) -> String {
    format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
}

pub(super) fn range_fault(start: usize, end: usize, resource: &str, len: usize) -> String {
    if start > end {
        return "ends before it begins".to_owned();
    }
    format!("exceeds {resource}'s {}", counted(len, "element"))
}

pub(super) fn cast_fault(
    bytes: usize,
    address: u64,
    type_name: &str,
    size: usize,
    align: usize,
) -> String {
    let is_whole = size != 0 && bytes.is_multiple_of(size);
    let bytes = counted(bytes, "byte");
    match size {
        0 => format!("{bytes} are no values of {type_name}, which is zero-sized"),
        _ if is_whole => format!(
            "the address {address:#x} is not aligned for {type_name}, which has alignment {align}"
        ),
        _ => format!(
            "{bytes} are not a multiple of {}, the size of {type_name}",
            counted(size, "byte")
        ),
    }
}

pub(super) fn update_reason(result: u32) -> String {
    use cuguard_driver::sys::graph_exec_update_result as reason;
    let (name, words) = match result {
        reason::ERROR_TOPOLOGY_CHANGED => (
            "TOPOLOGY_CHANGED",
            "the new graph has other nodes or dependencies",
        ),
        reason::ERROR_NODE_TYPE_CHANGED => (
            "NODE_TYPE_CHANGED",
            "a node of the new graph is of another type, such as a copy in place of a fill",
        ),
        reason::ERROR_FUNCTION_CHANGED => (
            "FUNCTION_CHANGED",
            "a node of the new graph launches another kernel",
        ),
        reason::ERROR_PARAMETERS_CHANGED => (
            "PARAMETERS_CHANGED",
            "a node of the new graph differs in a parameter that cannot be changed, such as where its memory is",
        ),
        reason::ERROR_NOT_SUPPORTED => (
            "NOT_SUPPORTED",
            "a node of the new graph cannot be changed, such as an allocation",
        ),
        reason::ERROR_UNSUPPORTED_FUNCTION_CHANGE => (
            "UNSUPPORTED_FUNCTION_CHANGE",
            "a node of the new graph launches another kernel, and this change is not supported",
        ),
        reason::ERROR_ATTRIBUTES_CHANGED => (
            "ATTRIBUTES_CHANGED",
            "a node of the new graph has other attributes",
        ),
        _ => ("", "the driver does not say why"),
    };
    format!("{words} (CU_GRAPH_EXEC_UPDATE_ERROR_{name}); the executable is unchanged")
        .replace("_ERROR_)", "_ERROR)")
}

pub(super) fn devices(count: u32) -> String {
    match count {
        0 => "there are no devices".to_owned(),
        1 => "there is 1 device".to_owned(),
        _ => format!("there are {count} devices"),
    }
}
