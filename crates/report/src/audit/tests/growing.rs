//! Which call sites a report calls growing.

use super::*;

/// The functions that a report calls growing: each by the innermost frame that tells it apart.
fn growing(sites: Vec<SiteHistory>, groups: Vec<Group>) -> Vec<(u64, Vec<String>)> {
    let mut process = process();
    (process.history.sites, process.groups) = (sites, groups);
    let value = read(with("json", &process).json.trim_end());
    let rows = value["growth"].as_array().unwrap().iter();
    let rows = rows.map(|row| {
        let frames = row["stack"].as_array().unwrap().iter();
        let names = frames.map(|frame| frame["function"].as_str().unwrap().to_owned());
        (row["blocks"].as_u64().unwrap(), names.collect())
    });
    rows.collect()
}

#[test]
fn a_function_that_allocates_for_others_is_looked_through() {
    let leak = || site(&[LOAD, TRAIN, MAIN], 1 << 20, |step| step);
    let shrinks = || site(&[LOAD, MAIN], 1 << 20, |step| 32 - step);
    assert_eq!(
        growing(vec![shrinks(), leak()], vec![]),
        [(
            31,
            vec!["load".to_owned(), "train".to_owned(), "<module>".to_owned()]
        )]
    );
    // Neither of its callers has enough by itself.
    let half =
        |stack: &'static [usize], odd| site(stack, 1 << 20, move |step| (step + odd) / 6 / 2);
    let found = growing(
        vec![half(&[LOAD, TRAIN, MAIN], 0), half(&[LOAD, MAIN], 6)],
        vec![],
    );
    assert_eq!(found, [(5, vec!["load".to_owned()])], "no caller is named");
}

#[test]
fn what_is_lost_grows_also_where_it_was_allocated_at_once() {
    let burst = || vec![site(&[LOAD, MAIN], 1 << 20, |_| 60)];
    assert_eq!(growing(burst(), vec![]), []);
    let lost = |count| {
        group(
            Fate::Lost,
            Kind::Device,
            (count, count << 20),
            &[LOAD, MAIN],
        )
    };
    assert_eq!(growing(burst(), vec![lost(4)]), []);
    // Here once and there once.
    let both = || {
        let stacks: [&'static [usize]; 2] = [&[LOAD, TRAIN, MAIN], &[LOAD, MAIN]];
        let lost = |stack| group(Fate::Lost, Kind::Device, (4, 4 << 20), stack);
        let sites = stacks.map(|stack| site(stack, 1 << 20, |_| 4));
        growing(sites.into(), stacks.map(lost).into())
    };
    assert_eq!(both(), []);
    // Only what is lost.
    assert_eq!(growing(burst(), vec![lost(20)])[0].0, 20);
}
