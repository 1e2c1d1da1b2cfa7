//! Writes `src/open_inference/messages/*.rs` and the descriptors that reflection serves, from the `.proto` files of the server crate.

use prost::Message;
use std::path::Path;
use std::{env, fs};

/// Messages that REST answers with too: there they are JSON.
const ALSO_JSON: [&str; 14] = [
    "ServerMetadataResponse",
    "ModelMetadataResponse",
    "ModelConfig",
    "ModelInput",
    "ModelOutput",
    "ModelInstanceGroup",
    "ModelDynamicBatching",
    "ModelTransactionPolicy",
    "StatisticDuration",
    "InferStatistics",
    "InferBatchStatistics",
    "ModelStatistics",
    "ModelStatisticsResponse",
    "RepositoryIndexResponse",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = env::args().nth(1).ok_or("usage: protos PATH-OF-THE-SERVER-CRATE")?;
    let (protos, out) = (Path::new(&server).join("proto"), Path::new(&server).join("src/open_inference/messages"));
    let mut files: Vec<String> = Vec::new();
    for entry in fs::read_dir(&protos)? {
        let name = entry?.file_name().into_string().map_err(|_| "a file name that is not text")?;
        files.extend(name.ends_with(".proto").then_some(name));
    }
    files.sort();
    let descriptors = protox::compile(&files, [&protos])?;
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    let mut config = prost_build::Config::new();
    // Tensors stay slices of the request that they came in.
    config.bytes(["."]).disable_comments(["."]).out_dir(&out);
    for message in ALSO_JSON {
        config.type_attribute(format!(".inference.{message}"), "#[derive(serde::Serialize)]");
    }
    for data_type in ["ModelInput.data_type", "ModelOutput.data_type"] {
        let name = "#[serde(serialize_with = \"super::data_type_name\")]";
        config.field_attribute(format!(".inference.{data_type}"), name);
    }
    config.compile_fds(descriptors)?;
    Ok(())
}
