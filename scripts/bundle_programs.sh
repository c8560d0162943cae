# What a bundle holds, in one place: bundle.sh builds these programs, fill_bundle.sh copies them. param_sync-mpi and param_sync-gloo need what
# is installed as a whole; with coded_transfer, graph_programs, scheduled_lasso and split_layer a bundle would be larger than 64 MiB.
bundle_programs=(echo_server gpusock-bench gpusock-doctor gpusock-top param_sync)
# What ./run demo, bench and gpu-check do not run is packed, like the tests, until ./run unpack: most of each program is the same libraries.
bundle_seldom=(all_reduce all_to_all file_sender http_client http_server matmul_server matrix_completion redis_client sparse_regression)
# What gpu-check runs. The other tests need no GPU, or what a bundle has not.
bundle_tests=(calls_test connections_test fault_matrix_test gpunet_test kernels_test param_sync_model_test)
bundle_verbs_tests=(gpu_memory_test) # in a build for GPUs with libibverbs
