use std::sync::mpsc;
use std::thread;

use tokio::runtime::Builder;

use super::*;

fn all(claimed: Claimed) -> Claim {
    match claimed {
        Claimed::All(claim) => claim,
        Claimed::Held(wait) => panic!("{wait:?}"),
    }
}

fn held(claimed: Claimed) -> Wait {
    match claimed {
        Claimed::Held(wait) => wait,
        Claimed::All(claim) => panic!("{claim:?}"),
    }
}

#[test]
fn all_samples_are_claimed_or_none_and_each_is_waited_for_once() {
    let claims = Arc::<Claims>::default();
    let (mut first, mut second, mut third) =
        (Claimant::blocking(), Claimant::blocking(), Claimant::blocking());
    let claim = all(first.claim(&claims, &[1, 2, 2]).unwrap());
    let wait = held(second.claim(&claims, &[2, 3]).unwrap());
    let other = all(third.claim(&claims, &[3]).unwrap());
    drop(claim);
    second.wait(wait);
    let wait = held(second.claim(&claims, &[2, 3]).unwrap());
    // Another one that loads what was waited for already is not waited for.
    let again = all(third.claim(&claims, &[2]).unwrap());
    drop(other);
    second.wait(wait);
    let rest = all(second.claim(&claims, &[2, 3]).unwrap());
    assert_eq!(rest.samples, [3]);
    drop((rest, again));
    assert!(claims.held.lock().unwrap().is_empty());
}

#[test]
fn one_with_inputs_claims_what_is_free() {
    let claims = Arc::<Claims>::default();
    let _first = all(Claimant::blocking().claim(&claims, &[1, 2]).unwrap());
    let free = claims.claim_free(&[2, 3]).unwrap();
    assert_eq!(free.samples, [3]);
    held(Claimant::blocking().claim(&claims, &[3]).unwrap());
}

#[test]
fn a_request_waits_neither_for_itself_nor_while_its_thread_runs_a_module() {
    let claims = Arc::<Claims>::default();
    let outer = Claimant::blocking();
    let _outer = {
        let mut outer = Claimant { request: outer.request.clone(), ..Claimant::blocking() };
        all(outer.claim(&claims, &[1]).unwrap())
    };
    let entered = outer.request().enter();
    all(Claimant::blocking().claim(&claims, &[1]).unwrap());
    drop(entered);
    held(Claimant::blocking().claim(&claims, &[1]).unwrap());
    let _computing = Entered::computing();
    all(Claimant::blocking().claim(&claims, &[1]).unwrap());
}

#[test]
fn loaders_that_ask_for_the_samples_of_each_other_do_not_wait_for_each_other() {
    let claims = Arc::<Claims>::default();
    let (claimed, both_claimed) = (Arc::new(std::sync::Barrier::new(2)), mpsc::channel());
    for (own, other) in [(1, 2), (2, 1)] {
        let (claims, claimed, ended) = (claims.clone(), claimed.clone(), both_claimed.0.clone());
        thread::spawn(move || {
            let mut outer = Claimant::blocking();
            let _claim = all(outer.claim(&claims, &[own]).unwrap());
            claimed.wait();
            let _entered = outer.request().enter();
            let mut inner = Claimant::blocking();
            while let Claimed::Held(wait) = inner.claim(&claims, &[other]).unwrap() {
                inner.wait(wait);
            }
            ended.send(()).unwrap();
        });
    }
    for _ in 0..2 {
        both_claimed.1.recv_timeout(PATIENCE / 2).expect("they wait for each other");
    }
}

#[test]
fn patience_ends() {
    let claims = Arc::<Claims>::default();
    let _first = all(Claimant::blocking().claim(&claims, &[1]).unwrap());
    let mut second = Claimant::blocking();
    let wait = held(second.claim(&claims, &[1]).unwrap());
    second.wait_within(wait, Duration::ZERO);
    assert!(all(second.claim(&claims, &[1]).unwrap()).samples.is_empty());
}

#[test]
fn of_those_that_wait_for_a_dropped_future_one_takes_over_and_the_others_wait_on() {
    let claims = Arc::<Claims>::default();
    Builder::new_current_thread().build().unwrap().block_on(async {
        let mut first = Claimant::asynchronous();
        let claim = all(first.claim(&claims, &[1]).unwrap());
        let [mut second, mut third] = [(); 2].map(|()| Claimant::asynchronous());
        let waits = [&mut second, &mut third].map(|claimant| held(claimant.claim(&claims, &[1]).unwrap()));
        {
            let mut loading = pin!(during(&first.request, Some(&claim), std::future::pending::<()>()));
            let polled = poll_fn(|context| std::task::Poll::Ready(loading.as_mut().poll(context))).await;
            assert!(polled.is_pending());
        }
        drop(claim);
        let [wait, other] = waits;
        second.wait_async(wait).await;
        third.wait_async(other).await;
        let claim = all(second.claim(&claims, &[1]).unwrap());
        let wait = held(third.claim(&claims, &[1]).unwrap());
        during(&second.request, Some(&claim), async {}).await;
        drop(claim);
        third.wait_async(wait).await;
        let _other = all(Claimant::asynchronous().claim(&claims, &[1]).unwrap());
        assert!(all(third.claim(&claims, &[1]).unwrap()).samples.is_empty(), "it has its answer");
    });
}

#[test]
fn tasks_do_not_wait_for_ever_for_a_future_that_nothing_polls() {
    let claims = Arc::<Claims>::default();
    let _claim = all(Claimant::asynchronous().claim(&claims, &[1, 2]).unwrap());
    // Without a clock.
    Builder::new_current_thread().build().unwrap().block_on(async {
        for sample in [1, 2] {
            let mut waiting = Claimant::asynchronous();
            let wait = held(waiting.claim(&claims, &[sample]).unwrap());
            waiting.wait_async_within(wait, Duration::from_millis(20)).await;
            assert!(waiting.has_waited());
            assert!(
                all(waiting.claim(&claims, &[sample]).unwrap()).samples.is_empty(),
                "it loads the sample itself"
            );
        }
    });
}

#[test]
fn a_blocking_request_in_a_runtime_does_not_wait_for_a_future() {
    let claims = Arc::<Claims>::default();
    let _claim = all(Claimant::asynchronous().claim(&claims, &[1]).unwrap());
    held(Claimant::blocking().claim(&claims, &[1]).unwrap());
    Builder::new_current_thread().build().unwrap().block_on(async {
        held(Claimant::asynchronous().claim(&claims, &[1]).unwrap());
        all(Claimant::blocking().claim(&claims, &[1]).unwrap());
    });
}
