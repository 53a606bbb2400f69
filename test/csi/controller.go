package csi

import (
	"context"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// controller makes and attaches volumes.
type controller struct {
	spec.UnimplementedControllerServer
	state

	busy *busy
}

// ControllerGetCapabilities lists what the controller can do.
func (*controller) ControllerGetCapabilities(
	context.Context, *spec.ControllerGetCapabilitiesRequest,
) (*spec.ControllerGetCapabilitiesResponse, error) {
	reply := &spec.ControllerGetCapabilitiesResponse{}
	for _, c := range []spec.ControllerServiceCapability_RPC_Type{
		spec.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		spec.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
		spec.ControllerServiceCapability_RPC_LIST_VOLUMES,
		spec.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES,
		spec.ControllerServiceCapability_RPC_GET_CAPACITY,
		spec.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
		spec.ControllerServiceCapability_RPC_LIST_SNAPSHOTS,
		spec.ControllerServiceCapability_RPC_CLONE_VOLUME,
		spec.ControllerServiceCapability_RPC_EXPAND_VOLUME,
		spec.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	} {
		reply.Capabilities = append(reply.Capabilities, &spec.ControllerServiceCapability{
			Type: &spec.ControllerServiceCapability_Rpc{Rpc: &spec.ControllerServiceCapability_RPC{Type: c}},
		})
	}
	return reply, nil
}

// ValidateVolumeCapabilities confirms the ways to use a volume that the driver supports.
func (c *controller) ValidateVolumeCapabilities(
	_ context.Context, r *spec.ValidateVolumeCapabilitiesRequest,
) (*spec.ValidateVolumeCapabilitiesResponse, error) {
	if r.GetVolumeId() == "" {
		return nil, invalid("no volume id is given")
	}
	if len(r.GetVolumeCapabilities()) == 0 {
		return nil, invalid("no volume capabilities are given")
	}
	if _, err := c.volumes.get(r.GetVolumeId()); err != nil {
		return nil, err
	}
	if err := checkAll(r.GetVolumeCapabilities()); err != nil {
		return &spec.ValidateVolumeCapabilitiesResponse{Message: err.Error()}, nil //nolint:nilerr // the answer says why not
	}
	return &spec.ValidateVolumeCapabilitiesResponse{Confirmed: &spec.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext: r.GetVolumeContext(), VolumeCapabilities: r.GetVolumeCapabilities(), Parameters: r.GetParameters(),
	}}, nil
}

// GetCapacity returns what the folder's file system has left. Volumes take only what is written to them.
func (c *controller) GetCapacity(_ context.Context, r *spec.GetCapacityRequest) (*spec.GetCapacityResponse, error) {
	for _, way := range r.GetVolumeCapabilities() {
		if ok := check(way) == nil; !ok {
			return &spec.GetCapacityResponse{}, nil
		}
	}
	free, err := c.free()
	if err != nil {
		return nil, err
	}
	return &spec.GetCapacityResponse{
		AvailableCapacity: free, MaximumVolumeSize: wrapperspb.Int64(free), MinimumVolumeSize: wrapperspb.Int64(unit),
	}, nil
}

// page returns the part of a list that a caller asked for, and the token of the next part. The token is
// the last id of a part, so that the next one begins after it although others came or went.
func page(ids []string, token string, limit int32) (part []string, next string, err error) {
	if token != "" && !isID(token) {
		return nil, "", status.Errorf(codes.Aborted, "no such token: %q", token)
	}
	if limit < 0 {
		return nil, "", invalid("want %d entries at the most", limit)
	}
	for _, id := range ids {
		if id <= token {
			continue
		}
		if limit > 0 && len(part) == int(limit) {
			return part, part[limit-1], nil
		}
		part = append(part, id)
	}
	return part, "", nil
}
