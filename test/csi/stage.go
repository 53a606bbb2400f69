package csi

import (
	"context"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
)

// NodeStageVolume mounts a volume's file system, which it makes on a blank one. A block volume needs
// nothing.
func (n *node) NodeStageVolume(ctx context.Context, r *spec.NodeStageVolumeRequest) (*spec.NodeStageVolumeResponse, error) {
	if r.GetVolumeId() == "" || r.GetStagingTargetPath() == "" {
		return nil, invalid("want a volume id and a staging path")
	}
	if err := check(r.GetVolumeCapability()); err != nil {
		return nil, err
	}
	release, err := n.busy.take(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer release()
	if _, err := n.volumes.get(r.GetVolumeId()); err != nil {
		return nil, err
	}
	device := r.GetPublishContext()[deviceKey]
	if device == "" {
		return nil, invalid("volume %s is not attached", r.GetVolumeId())
	}
	if r.GetVolumeCapability().GetBlock() != nil {
		return &spec.NodeStageVolumeResponse{}, nil
	}
	// Another node may find the device blank, too.
	unlock, err := lock(n.volumes.data(r.GetVolumeId()))
	if err != nil {
		return nil, err
	}
	defer unlock()
	flags := r.GetVolumeCapability().GetMount().GetMountFlags()
	return &spec.NodeStageVolumeResponse{}, mountFS(ctx, device, r.GetStagingTargetPath(), flags,
		readOnly(r.GetVolumeCapability().GetAccessMode().GetMode()))
}

// NodeUnstageVolume unmounts its file system.
func (n *node) NodeUnstageVolume(_ context.Context, r *spec.NodeUnstageVolumeRequest) (*spec.NodeUnstageVolumeResponse, error) {
	if r.GetVolumeId() == "" || r.GetStagingTargetPath() == "" {
		return nil, invalid("want a volume id and a staging path")
	}
	release, err := n.busy.take(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer release()
	return &spec.NodeUnstageVolumeResponse{}, unmount(r.GetStagingTargetPath())
}
