"""What follows from the options of a submission."""

from train_pytorch_model.azure.submission import DEFAULT_VM_SIZE, Submission


def test_a_new_cluster_has_gpus_and_enough_nodes_for_the_job() -> None:
    nodes = Submission(instance_count=4)
    assert (nodes.new_vm_size, nodes.new_max_nodes) == (DEFAULT_VM_SIZE, 4)
