//! What the names of C++ functions tell: where the type that they return ends, and whether they are the standard library's.

/// What the names of C++ have for a namespace without a name.
pub(crate) const ANONYMOUS: &str = "(anonymous namespace)";

/// The folder of the headers of libstdc++ and libc++, in a folder of includes. Below is a folder for each version, or `v1` of libc++.
const HEADERS: &str = "/c++/";

/// Where GCC itself is installed, and the folders of the sources of libstdc++ and libc++. Some distributions have the headers of GCC in
/// a folder without a version; programs may bring the sources of a library of their own.
const SOURCES_OF_LIBRARIES: [&str; 4] = ["/lib/gcc/", "/libstdc++-v3/", "/libc++/", "/libcxx/"];

/// How the files of C and C++ end that have a `.` in their names; headers of the standard library have none.
const SOURCES: [&str; 18] = [
    "c", "C", "cc", "cpp", "cxx", "c++", "cu", "cuh", "h", "H", "hh", "hpp", "hxx", "inl", "ipp",
    "tcc", "tpp", "cppm",
];

/// The namespaces of the standard library.
const NAMESPACES: [&str; 2] = ["std::", "__gnu_cxx::"];

/// Whether a function is C++'s or Rust's standard library's. A file of C++ decides alone: compilers write debug information without
/// namespaces, and programs specialize templates such as `std::hash`.
///
/// A name may be mangled still: the demangler does not know every expression that can be a template argument.
pub(crate) fn is_standard_library(function: &str, file: Option<&str>) -> bool {
    let name = without_return_type(function);
    file.is_some_and(is_of_standard_library)
        || !file.is_some_and(is_cpp)
            && (is_mangled_in_std(function)
                || NAMESPACES.iter().any(|prefix| name.starts_with(prefix)))
}

/// Whether a file is known to be a source of C or C++. The last part of a path such as `<artificial>` says nothing.
pub(crate) fn is_cpp(file: &str) -> bool {
    let end = file.rsplit_once('.').map(|(_, end)| end);
    end.is_some_and(|end| SOURCES.contains(&end))
}

/// Whether a file is a header of the C++ standard library: `/usr/include/c++/12/vector`, `/opt/llvm/include/c++/v1/vector`.
fn is_of_standard_library(file: &str) -> bool {
    let is_versioned = |(folder, rest): (&str, &str)| {
        let is_version =
            rest.starts_with("v1/") || rest.starts_with(|it: char| it.is_ascii_digit());
        is_version && (folder.ends_with("/include") || folder.contains("/include/"))
    };
    file.rsplit_once(HEADERS).is_some_and(is_versioned)
        || SOURCES_OF_LIBRARIES
            .iter()
            .any(|folder| file.contains(folder))
}

/// Whether a mangled name begins with namespace `std` or `__gnu_cxx`: `_ZSt11make_shared…`, `_ZNKSt3mapI…`, `_ZZNSt…`.
fn is_mangled_in_std(name: &str) -> bool {
    let mut prefixes = ["_Z", "__Z"].iter();
    let Some(name) = prefixes.find_map(|prefix| name.strip_prefix(prefix)) else {
        return false;
    };
    // A `Z` begins a name inside of a function, an `N` a name with a path, behind which methods have their qualifiers.
    let name = name.trim_start_matches('Z');
    let name = name.strip_prefix('N').map_or(name, |path| {
        path.trim_start_matches(['r', 'V', 'K', 'R', 'O'])
    });
    let is_abbreviation = |rest: &str| rest.starts_with(['t', 'a', 'b', 's', 'i', 'o', 'd']);
    name.strip_prefix('S').is_some_and(is_abbreviation) || name.starts_with("9__gnu_cxx")
}

/// The name of a function without the type that it returns, which the demangled names of C++'s templates have: of
/// `std::vector<int> app::load<int>(int)` it is `app::load<int>(int)`. Names of Rust and C are returned as they are.
pub(crate) fn without_return_type(name: &str) -> &str {
    // Most names: a space ends the type.
    if !name.contains(' ') {
        return name;
    }
    const OPERATOR: &str = "operator";
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let mut start = 0;
    // How many brackets are open: round ones, inside of which `<` may be an operator, and others.
    let (mut round, mut other) = (0_usize, 0_usize);
    let mut at = 0;
    while let Some(&character) = name.as_bytes().get(at) {
        let before = at.checked_sub(1).map(|before| name.as_bytes()[before]);
        let is_outside = round == 0 && other == 0;
        let rest = name.as_bytes().get(at..).unwrap_or_default();
        match character {
            // Types inside of the name of an operator are no type that it returns.
            b'o' if is_outside
                && rest.starts_with(OPERATOR.as_bytes())
                && !before.is_some_and(is_word)
                && !rest.get(OPERATOR.len()).copied().is_some_and(is_word) =>
            {
                break;
            }
            b'(' if is_outside && rest.starts_with(ANONYMOUS.as_bytes()) => {
                at += ANONYMOUS.len();
                continue;
            }
            // `decltype (…)`, and what is returned by pointer, `void (*)(char) app::find<int>(int)`; other parentheses begin the
            // parameters.
            b'(' if is_outside
                && before.is_some_and(|before| before != b' ' && before != b')')
                && !name[start..at].ends_with("decltype") =>
            {
                break;
            }
            b'(' => round += 1,
            b')' => round = round.saturating_sub(1),
            // The mark of a copy that the compiler made: `load [clone .cold]`.
            b' ' if is_outside && rest.starts_with(b" [clone") => break,
            b' ' if is_outside => start = at + 1,
            b'-' if rest.starts_with(b"->") => at += 1,
            b'<' | b'[' | b'{' if round == 0 => other += 1,
            b'>' | b']' | b'}' if round == 0 => other = other.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    &name[start..]
}

#[cfg(test)]
mod tests {
    use super::{is_standard_library, without_return_type};
    use crate::demangle;

    #[test]
    fn types_that_functions_return_are_left_out() {
        for (name, expected) in [
            ("main", "main"),
            ("", ""),
            ("void k<float, 4>(float*)", "k<float, 4>(float*)"),
            (
                "std::vector<int, std::allocator<int> > app::load<int>(std::vector<int> const&)",
                "app::load<int>(std::vector<int> const&)",
            ),
            ("unsigned long const& app::f<int>()", "app::f<int>()"),
            (
                "std::string (anonymous namespace)::name()",
                "(anonymous namespace)::name()",
            ),
            (
                "(anonymous namespace)::f(int, std::string) const",
                "(anonymous namespace)::f(int, std::string) const",
            ),
            (
                "app::(anonymous namespace)::f(int, std::string)",
                "app::(anonymous namespace)::f(int, std::string)",
            ),
            (
                "decltype (f((a)<(b))) app::apply<int>(int)",
                "app::apply<int>(int)",
            ),
            ("decltype(f()) app::apply<int>(int)", "app::apply<int>(int)"),
            (
                "void std::_Construct<main()::Node>(main()::Node*)",
                "std::_Construct<main()::Node>(main()::Node*)",
            ),
            (
                "std::enable_if<((sizeof (int))>(2)), int>::type app::f<int>(int)",
                "app::f<int>(int)",
            ),
            (
                "app::X::operator std::string() const",
                "app::X::operator std::string() const",
            ),
            (
                "bool app::operator< <int>(int, int)",
                "app::operator< <int>(int, int)",
            ),
            (
                "X* app::X::operator-><int>() const",
                "app::X::operator-><int>() const",
            ),
            ("std::x my_operator<int>(int)", "my_operator<int>(int)"),
            (
                "main::{lambda(int)#1}::operator()(int) const",
                "main::{lambda(int)#1}::operator()(int) const",
            ),
            ("load [clone .cold]", "load [clone .cold]"),
            (
                "int load<int>(int) [clone .isra.0]",
                "load<int>(int) [clone .isra.0]",
            ),
            (
                "<T as core::convert::Into<U>>::into",
                "<T as core::convert::Into<U>>::into",
            ),
            (
                "<fn(i32) -> i32 as core::ops::FnOnce>::call",
                "<fn(i32) -> i32 as core::ops::FnOnce>::call",
            ),
            ("<impl Fn(é) -> ü>::ö", "<impl Fn(é) -> ü>::ö"),
        ] {
            assert_eq!(without_return_type(name), expected, "{name}");
        }
    }

    /// Pointers and references to functions, members and arrays, which templates return.
    #[test]
    fn types_with_parentheses_are_left_out() {
        for (symbol, expected) in [
            ("_ZN3app4findIiEEPFvcET_", "app::find<int>(int)"),
            ("_ZN3app2hrIiEERPFvcET_", "app::hr<int>(int)"),
            ("_ZN3app2frIiEERFvcET_", "app::fr<int>(int)"),
            ("_ZN3app2cbIiEEPFvPFicEET_", "app::cb<int>(int)"),
            ("_ZN3app5makerIiEEPFPFvcEiET_", "app::maker<int>(int)"),
            ("_ZN3app7cmemberIiEEM1XKFiiET_", "app::cmember<int>(int)"),
            (
                "_ZN3app6memberIiEEMNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEFiiET_",
                "app::member<int>(int)",
            ),
            ("_ZN3app2arIiEERA3_iT_", "app::ar<int>(int)"),
            ("_ZN3app3parIiEEPA3_iT_", "app::par<int>(int)"),
            ("_ZN3app2mpIiEEM1XiT_", "app::mp<int>(int)"),
            ("_ZN3app3ne2IiEEPDoFvcET_", "app::ne2<int>(int)"),
            (
                "_ZN3app12_GLOBAL__N_14anonIiEEPFvcET_",
                "app::(anonymous namespace)::anon<int>(int)",
            ),
            (
                "_ZN12_GLOBAL__N_14anonIiEEPFvcET_",
                "(anonymous namespace)::anon<int>(int)",
            ),
            ("_ZN3app1YclIiEEPFvcET_", "app::Y::operator()<int>(int)"),
            (
                "_ZN3app1YcvT_IPFvcEEEv",
                "app::Y::operator void (*)(char)<void (*)(char)>()",
            ),
            ("_ZN3app4ded2IiEEDcT_", "app::ded2<int>(int)"),
        ] {
            let name = demangle(symbol);
            assert_eq!(without_return_type(&name), expected, "{name}");
        }
        assert_eq!(
            demangle("_ZN3app4findIiEEPFvcET_"),
            "void (*)(char) app::find<int>(int)"
        );
    }

    #[test]
    fn the_standard_library_is_recognized() {
        for (name, file) in [
            ("std::vector<int>::push_back(int)", None),
            ("void std::_Construct<main()::Node>(main()::Node*)", None),
            ("std::shared_ptr<Buf> std::make_shared<Buf>()", None),
            ("__gnu_cxx::new_allocator<Buf>::construct(Buf*)", None),
            (
                "_ZSt11make_sharedI3BufJiEESt10shared_ptrINSt9enable_ifIXntsrSt8is_arrayIT_E5valueES4_E4typeEEDpOT0_",
                None,
            ),
            ("_ZNSt6vectorI1XE3putEv", None),
            ("_ZNKSt6vectorI1XE3getEv", None),
            ("_ZNSolsEi", None),
            ("_ZZNSt6vectorI1XE3putEvENKUlvE_clEv", None),
            ("_ZN9__gnu_cxx3putEv", None),
            ("_ZNK9__gnu_cxx3putEv", None),
            ("std::thread::spawn", None),
            // As debug information has names without a linkage name.
            (
                "construct<nodes()::Node>",
                Some("/usr/include/c++/12/bits/new_allocator.h"),
            ),
            (
                "emplace_back<>",
                Some("/opt/llvm/bin/../include/c++/v1/vector"),
            ),
            (
                "__gthread_once",
                Some("/usr/include/x86_64-linux-gnu/c++/12/bits/gthr-default.h"),
            ),
            (
                "construct<nodes()::Node>",
                Some("/usr/lib/gcc/x86_64-pc-linux-gnu/13/include/g++-v13/bits/new_allocator.h"),
            ),
            // The file says nothing.
            ("std::vector<int>::push_back(int)", Some("<artificial>")),
            (
                "std::thread::spawn",
                Some("/rustc/1a2b/library/std/src/thread.rs"),
            ),
        ] {
            assert!(is_standard_library(name, file), "{name}");
        }
        let own = Some("/home/me/model.cpp");
        for name in [
            "std::vector<int> load<std::vector<int> >(std::vector<int> const&)",
            "std::string app::name[abi:cxx11]()",
            "app::X::operator std::string() const",
            "_ZN3app4makeIiEENSt9enable_ifIXntsrSt8is_arrayIT_E5valueES4_E4typeEv",
            "_Z4loadISt6vectorIiEEvT_",
            "_Z1SSt6vectorIiE",
            "_ZN5Stats4loadEv",
            "Start",
            "ZSt",
            "standard::f()",
            "std::hash<K>::operator()(K const&) const",
            "_ZNKSt4hashI1KEclERKS0_",
        ] {
            assert!(!is_standard_library(name, own), "{name}");
        }
        for file in [
            "/home/me/proj/include/c++/model.h",
            "/home/me/c++/2/model.h",
            "/home/me/include/v1/model.h",
        ] {
            assert!(!is_standard_library("load", Some(file)), "{file}");
        }
    }
}
