//! Moments, groups and timelines of random runs against a simple model: the state behind each event.

use std::collections::BTreeMap;

use crate::support::{DEVICE, PINNED, allocated, at, freed, run};
use cuguard_recording::Event;
use cuguard_view::{At, By, Frames, Memory, Run, group, moment, peak, timeline};
use proptest::prelude::*;

/// One step: how long after the last, what, where, how much, from which stack.
type Step = (u64, bool, u8, u64, u64, u32);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (
        0..3_u64,
        any::<bool>(),
        DEVICE..=PINNED,
        0..6_u64,
        1..1000_u64,
        0..4_u32,
    );
    prop::collection::vec(step, 1..80)
}

/// What is alive, by kind and address: bytes and stack.
type State = BTreeMap<(u8, u64), (u64, u32)>;

/// The events, and the state behind all events of each time.
fn play(steps: &[Step]) -> (Vec<Event>, BTreeMap<u64, State>) {
    let (mut time, mut state) = (0, State::new());
    let mut events = Vec::new();
    let mut states = BTreeMap::from([(0, State::new())]);
    for (after, frees, kind, address, bytes, stack) in steps {
        time += after;
        match frees {
            true => {
                events.push(at(time, freed(*kind, *address)));
                state.remove(&(*kind, *address));
            }
            false => {
                events.push(at(time, allocated(*kind, *address, *bytes, *stack)));
                state.insert((*kind, *address), (*bytes, *stack));
            }
        }
        states.insert(time, state.clone());
    }
    (events, states)
}

fn state_at(states: &BTreeMap<u64, State>, time: u64) -> &State {
    states
        .range(..=time)
        .next_back()
        .expect("time 0 has a state")
        .1
}

fn device_bytes(state: &State) -> u64 {
    let device = state.iter().filter(|((kind, _), _)| *kind == DEVICE);
    device.map(|(_, (bytes, _))| bytes).sum()
}

fn bytes(state: &State) -> u64 {
    state.values().map(|(bytes, _)| bytes).sum()
}

/// What the run says is alive at a time.
fn alive(run: &Run, time: u64) -> State {
    let moment = moment(run, At::Time(time)).expect("the time is in the run");
    let entry = |a: &cuguard_view::Allocation| ((a.kind, a.address), (a.bytes, a.site));
    moment.allocations().map(entry).collect()
}

proptest! {
    #![proptest_config(cuguard_testing::property_config!())]

    #[test]
    fn what_is_alive_at_any_time(steps in steps(), share in 0.0..=1.0_f64) {
        let (events, states) = play(&steps);
        let run = run(events);
        let time = (run.end as f64 * share) as u64;
        prop_assert_eq!(&alive(&run, time), state_at(&states, time));
        prop_assert_eq!(&alive(&run, run.end), state_at(&states, run.end));
    }

    #[test]
    fn the_peak_is_the_highest_state(steps in steps()) {
        let (events, states) = play(&steps);
        let run = run(events);
        let peak = peak(&run);
        let most = states.values().map(device_bytes).max().expect("there is a state");
        if most > 0 {
            prop_assert_eq!(peak.device_bytes, most);
            let first = states.iter().find(|(_, state)| device_bytes(state) == most);
            prop_assert_eq!(peak.time, *first.expect("it is the maximum").0);
        } else {
            prop_assert_eq!(peak.bytes, states.values().map(bytes).max().expect("there is a state"));
        }
        let moment = moment(&run, At::Peak).expect("every run has a peak");
        prop_assert_eq!(moment.device_bytes, peak.device_bytes);
    }

    #[test]
    fn groups_add_up_to_the_moment(steps in steps(), share in 0.0..=1.0_f64) {
        let (events, states) = play(&steps);
        let run = run(events);
        let moment = moment(&run, At::Percent(100.0 * share)).expect("the time is in the run");
        let state = state_at(&states, moment.time);
        prop_assert_eq!(moment.total.bytes, bytes(state));
        for by in By::ALL {
            let groups = group(&moment, by, Frames::Program);
            prop_assert_eq!(groups.iter().map(|g| g.amount.bytes).sum::<u64>(), bytes(state));
            prop_assert_eq!(groups.iter().map(|g| g.amount.count).sum::<u64>(), state.len() as u64);
            prop_assert_eq!(groups.iter().map(|g| g.device_bytes).sum::<u64>(), device_bytes(state));
            prop_assert!(groups.is_sorted_by_key(|g| u64::MAX - g.amount.bytes));
            for group in &groups {
                prop_assert_eq!(group.kinds.iter().map(|k| k.1).sum_bytes(), group.amount.bytes);
                prop_assert_eq!(group.sites.iter().map(|s| s.1).sum_bytes(), group.amount.bytes);
                prop_assert!(group.oldest <= group.youngest && group.youngest <= moment.time);
                prop_assert!(group.inclusive >= group.amount);
            }
        }
        let by_stack = group(&moment, By::Stack, Frames::Program);
        for stack in 0..4 {
            let own: u64 = state.values().filter(|(_, s)| *s == stack).map(|(b, _)| b).sum();
            let shown = by_stack.iter().filter(|g| g.sites[0].0 == stack);
            prop_assert_eq!(shown.map(|g| g.amount.bytes).sum::<u64>(), own);
        }
    }

    #[test]
    fn buckets_show_their_highest_state(steps in steps(), buckets in 1..20_usize, most in 0..4_usize) {
        let (events, states) = play(&steps);
        let run = run(events);
        let timeline = timeline(&run, buckets, By::Stack, Memory::All, most);
        for bucket in 0..buckets {
            let times = bucket as u64 * timeline.width..(bucket as u64 + 1) * timeline.width;
            let highest = times.clone().map(|time| bytes(state_at(&states, time))).max();
            prop_assert_eq!(Some(timeline.total[bucket]), highest);
            prop_assert!(times.contains(&timeline.times[bucket]));
            let state = state_at(&states, timeline.times[bucket]);
            prop_assert_eq!(bytes(state), timeline.total[bucket]);
            let sum: u64 = timeline.series.iter().map(|series| series.bytes[bucket]).sum();
            prop_assert_eq!(sum, timeline.total[bucket]);
        }
        prop_assert!(timeline.series.len() <= most + 1);
    }
}

trait SumBytes {
    fn sum_bytes(self) -> u64;
}

impl<I: Iterator<Item = cuguard_view::Amount>> SumBytes for I {
    fn sum_bytes(self) -> u64 {
        self.map(|amount| amount.bytes).sum()
    }
}
