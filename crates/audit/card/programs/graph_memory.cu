// A graph with an allocation node and no free node: the launch allocates, and the address is lost with the graph.
#include "runtime.h"

static APART void launch_and_destroy(void) {
    cudaMemAllocNodeParams parameters;
    memset(&parameters, 0, sizeof parameters);
    parameters.poolProps.allocType = cudaMemAllocationTypePinned;
    parameters.poolProps.location.type = cudaMemLocationTypeDevice;
    parameters.poolProps.location.id = 0;
    parameters.bytesize = 4 * MIB;
    cudaGraph_t graph;
    cudaGraphNode_t node;
    cudaGraphExec_t executable;
    RT(cudaGraphCreate(&graph, 0));
    RT(cudaGraphAddMemAllocNode(&node, graph, NULL, 0, &parameters));
    RT(cudaGraphInstantiateWithFlags(&executable, graph, 0));
    RT(cudaGraphLaunch(executable, 0));
    RT(cudaStreamSynchronize(0));
    RT(cudaGraphExecDestroy(executable));
    RT(cudaGraphDestroy(graph));
    FORGET(parameters);
    FORGET(node);
    FORGET(executable);
    FORGET(graph);
}

int main(void) {
    launch_and_destroy();
    clobber_stack();
    expect_memory(LOST, "graph_memory", 1, 4 * MIB);
    expect_kind("graph", 0, 0);
    expect_kind("graph_exec", 0, 0);
    expected("");
    return 0;
}
