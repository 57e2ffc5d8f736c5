use trellis_rpc::ClusterId;
use trellis_types::Run;

use super::*;
use crate::IdentityError;

#[test]
fn a_node_is_somebody_for_ever() {
    let folder = Folder::new();
    let first = folder.open().identity;
    assert_ne!(first.node, NodeId(0));
    assert_eq!(folder.open().identity, first);
    assert_ne!(Folder::new().open().identity.node, first.node);
}

#[test]
fn every_run_is_a_new_one_even_after_a_crash() {
    let folder = Folder::new();
    let opened = folder.open();
    assert_eq!(opened.meta.next_run().unwrap(), Run(1));
    assert_eq!(opened.meta.next_run().unwrap(), Run(2));
    assert_eq!(folder.crash_image().open().meta.next_run().unwrap(), Run(3));
}

#[tokio::test]
async fn a_node_binds_once_and_may_be_unbound_while_its_log_is_empty() {
    let folder = Folder::new();
    let mut opened = folder.open();
    let (ours, theirs) = (ClusterId(1), ClusterId(2));
    opened.meta.bind(ours).unwrap();
    opened.meta.bind(ours).unwrap();
    match opened.meta.bind(theirs) {
        Err(IdentityError::OtherCluster { bound, asked }) => {
            assert_eq!((bound, asked), (ours, theirs));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(folder.crash_image().open().identity.cluster, Some(ours));

    opened.meta.unbind().unwrap();
    opened.meta.bind(theirs).unwrap();
    append(&mut opened.log, entries(0..1)).await.unwrap();
    assert!(matches!(opened.meta.unbind(), Err(IdentityError::HasLog)));
    opened.meta.set_formed().unwrap();
    opened.meta.set_name("trellis-0").unwrap();
    let again = folder.crash_image().open().identity;
    assert_eq!((again.formed, again.name.as_str()), (true, "trellis-0"));
}

#[test]
fn a_folder_in_use_is_refused_with_who_uses_it() {
    let folder = Folder::new();
    let opened = folder.open();
    std::fs::write(folder.path().join("pid"), "4711\n").unwrap();
    let refused = folder.try_open().err().unwrap().to_string();
    assert!(refused.contains("in use by process 4711"), "{refused}");
    assert!(refused.contains("stop that process"), "{refused}");
    drop(opened);
    folder.open();
}

#[test]
fn a_folder_of_a_newer_format_is_refused_with_what_to_do() {
    let folder = Folder::new();
    folder.open();
    std::fs::write(folder.path().join("FORMAT"), "trellis 3\n").unwrap();
    let refused = folder.try_open().err().unwrap().to_string();
    assert!(
        refused.contains("format 3") && refused.contains("start the newer Trellis"),
        "{refused}"
    );
}

#[test]
fn a_folder_of_an_older_format_is_refused_with_what_to_do() {
    let folder = Folder::new();
    folder.open();
    std::fs::write(folder.path().join("FORMAT"), "trellis 1\n").unwrap();
    let refused = folder.try_open().err().unwrap().to_string();
    assert!(
        refused.contains("format 1") && refused.contains("give this node an empty folder"),
        "{refused}"
    );
}

#[test]
fn a_folder_of_something_else_is_refused() {
    let folder = Folder::new();
    folder.open();
    for text in ["", "postgres 2\n"] {
        std::fs::write(folder.path().join("FORMAT"), text).unwrap();
        assert!(matches!(folder.try_open(), Err(OpenError::NoFormat { .. })));
    }
    std::fs::remove_file(folder.path().join("FORMAT")).unwrap();
    assert!(matches!(folder.try_open(), Err(OpenError::NoFormat { .. })));
}
