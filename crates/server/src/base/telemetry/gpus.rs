//! What the GPUs of this machine do, as NVIDIA's management library (NVML) says it. It is loaded when first asked for; without
//! it, or where it does not answer, nothing is shown instead of zeros.

use crate::base::telemetry::Telemetry;
use jitney_core::tables::metrics;
use nvml_wrapper::enum_wrappers::device::TemperatureSensor;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::{Device, Nvml};
use prometheus::GaugeVec;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// The name of the library. Packages of drivers have the one without a number only with their headers.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// The library, once it was asked for.
#[derive(Debug, Default)]
pub(super) struct Gpus(OnceLock<Option<Nvml>>);

impl Gpus {
    /// Sets the metrics of all GPUs, and of the processes with these ids, each with the labels of its replica.
    pub(super) fn show(&self, telemetry: &Telemetry, processes: &[(u32, [&str; 2])]) {
        let load = || {
            let loaded = Nvml::builder().lib_path(LIBRARY.as_ref()).init();
            loaded.inspect_err(|error| tracing::info!("no metrics of GPUs: {LIBRARY}: {error}")).ok()
        };
        if let Some(nvml) = self.0.get_or_init(load) {
            show_all(telemetry, nvml, processes);
        }
    }
}

fn show_all(telemetry: &Telemetry, nvml: &Nvml, processes: &[(u32, [&str; 2])]) {
    let mut used: BTreeMap<u32, u64> = BTreeMap::new();
    for index in 0..nvml.device_count().unwrap_or(0) {
        let Ok(device) = nvml.device_by_index(index) else { continue };
        show_device(telemetry, &device, index);
        for process in device.running_compute_processes().unwrap_or_default() {
            if let UsedGpuMemory::Used(bytes) = process.used_gpu_memory {
                *used.entry(process.pid).or_default() += bytes;
            }
        }
    }
    let memory = telemetry.gauges(metrics::WORKER_GPU_MEMORY);
    memory.reset();
    for (pid, labels) in processes {
        // In a container the library may name the processes as the host does: then no worker is found, and nothing is shown.
        if let Some(&bytes) = used.get(pid) {
            memory.with_label_values(labels).set(i64::try_from(bytes).unwrap_or(i64::MAX));
        }
    }
}

fn show_device(telemetry: &Telemetry, device: &Device, index: u32) {
    let (index, uuid) = (index.to_string(), device.uuid().unwrap_or_default());
    let labels = [index.as_str(), uuid.as_str()];
    let show = |levels: GaugeVec, value: Option<f64>| match value {
        Some(value) => levels.with_label_values(&labels).set(value),
        // It was there before, or never.
        None => drop(levels.remove_label_values(&labels)),
    };
    let memory = device.memory_info().ok();
    let milli = |value: u64| value as f64 / 1e3;
    show(
        telemetry.levels(metrics::GPU_UTILIZATION),
        device.utilization_rates().ok().map(|rates| f64::from(rates.gpu) / 100.0),
    );
    show(telemetry.levels(metrics::GPU_MEMORY_USED), memory.as_ref().map(|memory| memory.used as f64));
    show(telemetry.levels(metrics::GPU_MEMORY_TOTAL), memory.as_ref().map(|memory| memory.total as f64));
    show(telemetry.levels(metrics::GPU_POWER), device.power_usage().ok().map(|power| milli(power.into())));
    show(telemetry.levels(metrics::GPU_TEMPERATURE), device.temperature(TemperatureSensor::Gpu).ok().map(f64::from));
    if let Ok(energy) = device.total_energy_consumption() {
        let counter = telemetry.total(metrics::GPU_ENERGY, &labels);
        counter.inc_by((milli(energy) - counter.get()).max(0.0));
    }
}
