package csi

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
)

// node mounts volumes on one node.
type node struct {
	spec.UnimplementedNodeServer
	state

	name string
	busy *busy
}

// announce makes the node known to the controller.
func (n *node) announce() error {
	if !isNode(n.name) {
		return fmt.Errorf("serve node %q: want a DNS name", n.name)
	}
	return os.MkdirAll(filepath.Join(n.nodes, n.name), 0o700)
}

// NodeGetInfo names the node. It sees the volumes of all others.
func (n *node) NodeGetInfo(context.Context, *spec.NodeGetInfoRequest) (*spec.NodeGetInfoResponse, error) {
	return &spec.NodeGetInfoResponse{NodeId: n.name}, nil
}

// NodeGetCapabilities lists what the node can do.
func (*node) NodeGetCapabilities(
	context.Context, *spec.NodeGetCapabilitiesRequest,
) (*spec.NodeGetCapabilitiesResponse, error) {
	reply := &spec.NodeGetCapabilitiesResponse{}
	for _, c := range []spec.NodeServiceCapability_RPC_Type{
		spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
		spec.NodeServiceCapability_RPC_EXPAND_VOLUME,
		spec.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		spec.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	} {
		reply.Capabilities = append(reply.Capabilities, &spec.NodeServiceCapability{
			Type: &spec.NodeServiceCapability_Rpc{Rpc: &spec.NodeServiceCapability_RPC{Type: c}},
		})
	}
	return reply, nil
}
