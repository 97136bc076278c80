//! A cluster of Ballista whose executors query one cache together, each some segments of a module:
//!
//! ```text
//! tcx-ballista scheduler --host 10.0.0.1 --port 50050
//! tcx-ballista executor --host 10.0.0.2 --scheduler 10.0.0.1:50050 --work-dir /tmp/tcx      # on each machine
//! tcx-ballista query --scheduler 10.0.0.1:50050 s3://features/imagenet "select label, count(*) from resnet50_v1 group by label"
//! ```
//!
//! All processes must see the cache at the same path or URL, and have its credentials in their environment.

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use ballista_core::config::BallistaConfig;
use ballista_core::execution_plans::execute_physical_plan;
use ballista_core::extension::SessionConfigExt;
use ballista_core::serde::BallistaPhysicalExtensionCodec;
use ballista_executor::executor_process::{ExecutorProcessConfig, start_executor_process};
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::SchedulerConfig;
use ballista_scheduler::scheduler_process::start_server;
use clap::{Parser, Subcommand};
use datafusion::arrow::util::pretty::print_batches;
use datafusion::physical_plan::common;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_proto::physical_plan::PhysicalExtensionCodec;
use datafusion_proto::protobuf::PhysicalPlanNode;
use tcx_sql::{Cache, ModuleCodec, ModuleTable, split_scans};

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

/// Queries tcx caches with a cluster of Ballista.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs the scheduler.
    Scheduler {
        /// The address that it listens on.
        #[arg(long, default_value = "127.0.0.1")]
        host: IpAddr,
        #[arg(long, default_value_t = 50050)]
        port: u16,
    },
    /// Runs an executor.
    Executor {
        /// Where the scheduler is.
        #[arg(long, value_name = "HOST:PORT")]
        scheduler: String,
        /// The address that it listens on, and by which the others reach it.
        #[arg(long, default_value = "127.0.0.1")]
        host: IpAddr,
        /// The first of two ports that it listens on.
        #[arg(long, default_value_t = 50051)]
        port: u16,
        /// Where it puts what other executors fetch.
        #[arg(long)]
        work_dir: PathBuf,
        /// How many parts of plans it executes at the same time.
        #[arg(long, default_value_t = 1)]
        cores: usize,
    },
    /// Runs a query and prints the answer.
    Query {
        /// Where the scheduler is.
        #[arg(long, value_name = "HOST:PORT")]
        scheduler: String,
        /// The most parts of a scan.
        #[arg(long, default_value_t = 16)]
        parts: usize,
        /// A directory or a URL.
        cache: PathBuf,
        sql: String,
    },
}

#[tokio::main]
async fn main() -> Result<()> {
    env_logger::init();
    match Arguments::parse().command {
        Command::Scheduler { host, port } => run_scheduler(host, port).await,
        Command::Executor { scheduler, host, port, work_dir, cores } => {
            run_executor(&scheduler, (host, port), work_dir, cores).await
        }
        Command::Query { scheduler, parts, cache, sql } => query(&scheduler, parts, cache, &sql).await,
    }
}

/// What every process of the cluster sends plans with.
fn codec() -> Arc<dyn PhysicalExtensionCodec> {
    Arc::new(ModuleCodec::with(Arc::new(BallistaPhysicalExtensionCodec::default())))
}

async fn run_scheduler(host: IpAddr, port: u16) -> Result<()> {
    let config = SchedulerConfig {
        bind_host: host.to_string(),
        external_host: host.to_string(),
        bind_port: port,
        override_physical_codec: Some(codec()),
        ..SchedulerConfig::default()
    };
    let cluster = BallistaCluster::new_from_config(&config).await?;
    Ok(start_server(cluster, SocketAddr::from((host, port)), Arc::new(config)).await?)
}

async fn run_executor(
    scheduler: &str,
    (own, port): (IpAddr, u16),
    work_dir: PathBuf,
    cores: usize,
) -> Result<()> {
    let (host, scheduler_port) = scheduler.rsplit_once(':').ok_or("expected HOST:PORT of the scheduler")?;
    std::fs::create_dir_all(&work_dir)?;
    let work_dir = work_dir.into_os_string().into_string().map_err(|_| "the path is not UTF-8")?;
    let config = ExecutorProcessConfig {
        bind_host: own.to_string(),
        external_host: Some(own.to_string()),
        port,
        grpc_port: port + 1,
        scheduler_host: host.to_owned(),
        scheduler_port: scheduler_port.parse()?,
        scheduler_connect_timeout_seconds: 30,
        vcores: cores,
        work_dir: Some(work_dir),
        override_physical_codec: Some(codec()),
        // All functions of DataFusion: those of lists are not among the defaults of Ballista.
        override_function_registry: Some(Arc::new((&SessionContext::new().state()).into())),
        ..ExecutorProcessConfig::default()
    };
    Ok(start_executor_process(Arc::new(config)).await?)
}

/// Plans the query here, so that all executors read the rows of one moment, and has the cluster execute it.
async fn query(scheduler: &str, parts: usize, cache: PathBuf, sql: &str) -> Result<()> {
    let config = SessionConfig::new_with_ballista()
        .with_ballista_physical_extension_codec(codec())
        .with_target_partitions(parts);
    let context = SessionContext::new_with_config(config.clone());
    let cache = Cache::at(&cache)?;
    for module in cache.modules()? {
        context.register_table(module.as_str(), Arc::new(ModuleTable::open(&cache, &module)?))?;
    }
    let plan = split_scans(context.sql(sql).await?.create_physical_plan().await?)?;
    let answer = execute_physical_plan::<PhysicalPlanNode>(
        format!("http://{scheduler}"),
        &BallistaConfig::default(),
        plan,
        &*codec(),
        context.session_id(),
        config,
    )
    .await?;
    print_batches(&common::collect(answer).await?)?;
    Ok(())
}
