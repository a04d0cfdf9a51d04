//! What must hold for any header that the lists are read from.

use std::collections::{BTreeMap, BTreeSet};

use cuguard_sys::*;

/// The signature of each function, as text.
fn signatures() -> BTreeMap<&'static str, &'static str> {
    macro_rules! signatures {
        ($(fn $name:ident($($parameter:ident: $type:ty),*);)*) => {
            [$((stringify!($name), stringify!($($type),*))),*]
        };
    }
    with_functions!(signatures).into()
}

/// A program gets the newest version that was introduced by the version of CUDA that it was built for.
#[test]
fn versions_of_a_function_are_in_the_order_of_their_introduction() {
    for function in &FUNCTIONS {
        let versions: Vec<_> =
            FunctionInfo::versions(function.base, function.default_stream).collect();
        for pair in versions.windows(2) {
            assert!(pair[0].since < pair[1].since, "{pair:?}");
            assert!(pair[0].version < pair[1].version, "{pair:?}");
        }
    }
}

#[test]
fn an_exported_name_says_base_version_and_default_stream() {
    for function in &FUNCTIONS {
        let version = match function.version {
            1 => String::new(),
            number => format!("_v{number}"),
        };
        let plain = format!("{}{version}", function.base);
        let names = match function.default_stream {
            DefaultStream::Legacy => vec![plain],
            DefaultStream::PerThread => vec![format!("{plain}_ptds"), format!("{plain}_ptsz")],
        };
        assert!(names.contains(&function.name.to_owned()), "{function:?}");
        assert!(
            function.since >= 2000 && function.since % 10 == 0,
            "{function:?}"
        );
    }
}

#[test]
fn no_function_is_listed_twice() {
    let names: BTreeSet<_> = NAMES.into_iter().collect();
    assert_eq!(names.len(), FUNCTIONS.len());
    assert!(
        NAMES
            .iter()
            .eq(FUNCTIONS.iter().map(|function| &function.name))
    );
}

/// Per-thread variants are called in place of the plain function.
#[test]
fn every_per_thread_variant_has_a_plain_function_of_the_same_signature() {
    let signatures = signatures();
    let mut count = 0;
    for function in &FUNCTIONS {
        if function.default_stream == DefaultStream::PerThread {
            let plain = &function.name[..function.name.len() - "_ptsz".len()];
            let known = FunctionInfo::named(plain).expect(plain);
            assert_eq!(
                (known.base, known.version),
                (function.base, function.version)
            );
            assert!(known.since <= function.since, "{function:?}");
            assert_eq!(signatures[plain], signatures[function.name], "{plain}");
            count += 1;
        }
    }
    assert!(count > 100, "{count} variants");
}

/// The family of the function that creates contexts: an older version takes other arguments.
#[test]
fn the_signature_differs_between_versions_where_the_header_changed_it() {
    let signatures = signatures();
    assert_ne!(signatures["cuCtxCreate_v3"], signatures["cuCtxCreate_v4"]);
    assert_ne!(
        signatures["cuCtxSynchronize"],
        signatures["cuCtxSynchronize_v2"]
    );
    assert_eq!(signatures["cuCtxDestroy"], signatures["cuCtxDestroy_v2"]);
}

#[test]
fn every_result_code_has_a_name_and_a_text() {
    assert!(CUresult::ALL.len() > 80);
    for code in CUresult::ALL {
        let name = code.name().expect("a name");
        assert!(name.starts_with("CUDA_"), "{name}");
        assert!(!code.text().expect(name).is_empty(), "{name}");
    }
    let names: BTreeSet<_> = CUresult::ALL.iter().map(|code| code.name()).collect();
    assert_eq!(names.len(), CUresult::ALL.len());
}
