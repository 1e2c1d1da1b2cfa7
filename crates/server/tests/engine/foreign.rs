//! Workers that speak of what others hold.

use crate::support::{Rig, Said, right, text, texts};
use jitney_core::replicas::loss_history::Loss;
use jitney_core::request::ItemId;

#[tokio::test(start_paused = true)]
async fn what_a_worker_says_of_the_batch_of_another_one_counts_for_nothing() {
    let mut rig = Rig::running(|_| {});
    let mut honest = rig.worker().await;
    rig.settle().await;
    let call = rig.call("mine");
    let batch = honest.batch().await;
    let mut liar = rig.worker().await;
    rig.settle().await;
    let ids: Vec<ItemId> = texts(&batch).into_iter().map(|(id, _)| id).collect();
    let lie: Vec<Said> = ids.iter().map(|&id| (id, Some("a lie".to_owned()))).collect();
    liar.ask_inputs(batch.id, &ids).await;
    liar.finish(batch.id, &lie).await;
    rig.settle().await;
    assert!(!call.is_finished());
    honest.answer(&batch).await;
    assert_eq!(text(&call.await.unwrap()), right("mine"));
    // The liar got no input of the other: the first that it gets is a batch.
    rig.lose(honest, Loss::Killed).await;
    let call = rig.call("next");
    let batch = liar.batch().await;
    liar.answer(&batch).await;
    assert_eq!(text(&call.await.unwrap()), right("next"));
    rig.assert_empty().await;
}
