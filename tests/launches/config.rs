//! Configurations: limits of devices and kernels, cooperative launches, clusters.

use cuguard::{Error, LaunchConfig, Result};
use cuguard_testing::{Requirement, not_run};

use super::{Setup, observed_turn};

#[test]
fn configurations_are_made_of_numbers_and_tuples() {
    let config = LaunchConfig::new((2, 3), (4, 5, 6)).shared_bytes(7);
    assert_eq!((config.grid(), config.block()), ([2, 3, 1], [4, 5, 6]));
    assert!(!config.is_cooperative() && config.cooperative().is_cooperative());
    assert_eq!(
        LaunchConfig::from(((2, 3), (4, 5, 6))).shared_bytes(7),
        config
    );
    assert_ne!(config.cluster(2), config);
}

#[test]
fn what_no_device_can_launch_is_refused_with_value_and_limit() -> Result<()> {
    let _turn = observed_turn();
    let at = Setup::new()?;
    let nothing = at.module.function("nothing")?;
    let plain = LaunchConfig::new(1, 1);
    for (config, what) in [
        (
            LaunchConfig::new(0, 1),
            "grid.x is 0, which is not within 1 to 2147483647",
        ),
        (
            LaunchConfig::new((1, 70_000), 1),
            "grid.y is 70000, which is not within 1 to 65535",
        ),
        (
            LaunchConfig::new((1, 1, 0), 1),
            "grid.z is 0, which is not within 1 to 65535",
        ),
        (
            LaunchConfig::new(u32::MAX, 1),
            "grid.x is 4294967295, which is not within 1 to 2147483647",
        ),
        (
            LaunchConfig::new(1, 0),
            "block.x is 0, which is not within 1 to 1024",
        ),
        (
            LaunchConfig::new(1, 2048),
            "block.x is 2048, which is not within 1 to 1024",
        ),
        (
            LaunchConfig::new(1, (1, 1, 65)),
            "block.z is 65, which is not within 1 to 64",
        ),
        (
            LaunchConfig::new(1, (64, 64)),
            "the number of threads per block is 4096, which is not within 1 to 1024",
        ),
        (
            plain.shared_bytes(u32::MAX),
            "the dynamic shared memory in bytes is 4294967295, which is not within 0 to ",
        ),
    ] {
        let error = at.launch(&nothing, config).unwrap_err();
        assert!(matches!(error, Error::OutsideLimits { .. }), "{error:?}");
        let want = format!("Scope::launch of nothing: {what}");
        assert!(error.to_string().starts_with(&want), "{error}\n{want}");
        assert_eq!(error.code(), None);
    }
    // What was refused has broken nothing.
    at.launch(&nothing, (1, 1))?;
    at.launch(&nothing, ((3, 2, 1), (32, 32)))?;
    let Setup {
        context,
        stream,
        module,
    } = at;
    drop((stream, module));
    assert_eq!(context.live_count(), 0);
    Ok(())
}

#[test]
fn a_cooperative_launch_that_does_not_fit_names_what_does() -> Result<()> {
    let _turn = observed_turn();
    let at = Setup::new()?;
    let nothing = at.module.function("nothing")?;
    let most = nothing.max_cooperative_blocks(1024, 0)?;
    assert!(most >= nothing.max_active_blocks(1024, 0)? && most > 0);
    at.launch(&nothing, LaunchConfig::new(most, 1024).cooperative())?;
    let config = LaunchConfig::new(most + 1, 1024).cooperative();
    let error = at.launch(&nothing, config).unwrap_err();
    let what = "the number of blocks of a cooperative launch";
    let want = Error::OutsideLimits {
        operation: "Scope::launch",
        subject: "nothing".to_owned(),
        what,
        value: u64::from(most) + 1,
        least: 1,
        most: most.into(),
    };
    assert_eq!(error, want);
    Ok(())
}

#[test]
fn a_cluster_that_does_not_fit_names_what_does() -> Result<()> {
    let _turn = observed_turn();
    let at = Setup::new()?;
    let nothing = at.module.function("nothing")?;
    let grid = |cluster: u32| LaunchConfig::new(48, 32).cluster(cluster);
    match at.launch(&nothing, grid(2)) {
        Err(error @ Error::UnsupportedLaunch { .. }) => {
            // Not `eprintln!`, which the test harness captures.
            not_run(Requirement::Nvrtc, error);
            return Ok(());
        }
        launched => launched?,
    }
    at.launch(&nothing, grid(8))?;
    at.launch(&nothing, LaunchConfig::new((4, 4), 32).cluster((2, 2)))?;
    assert_eq!(
        at.launch(&nothing, grid(5)).unwrap_err().to_string(),
        "Scope::launch of nothing: cluster.x is 5, which does not divide the grid's 48 blocks"
    );
    assert_eq!(
        at.launch(&nothing, grid(0)).unwrap_err().to_string(),
        "Scope::launch of nothing: cluster.x is 0, which is not within 1 to 48"
    );
    let error = at.launch(&nothing, grid(16)).unwrap_err().to_string();
    let want = "Scope::launch of nothing: the number of blocks per cluster is 16, which is not within 1 to 8";
    assert_eq!(error, want);
    assert!(nothing.max_active_clusters(&grid(8))? > 0);
    nothing.allow_non_portable_clusters()?;
    assert_eq!(nothing.max_cluster_blocks(&grid(8))?, 16);
    // The cluster of the configuration does not count, its other numbers do.
    assert_eq!(nothing.max_cluster_blocks(&grid(0))?, 16);
    for (config, what) in [
        (LaunchConfig::new(0, 32), "grid.x is 0"),
        (LaunchConfig::new(1, 0), "block.x is 0"),
        (LaunchConfig::new(1, (32, 0)), "block.y is 0"),
        (LaunchConfig::new(1, 1025), "block.x is 1025"),
    ] {
        let error = nothing.max_cluster_blocks(&config).unwrap_err();
        let want = format!("Function::max_cluster_blocks of nothing: {what}, which is not within");
        assert!(error.to_string().starts_with(&want), "{error}");
    }
    at.launch(&nothing, grid(16))
}
