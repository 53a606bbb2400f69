package csi

import (
	"context"
	"fmt"
	"slices"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nodevirt/nodevirt/test/loopdev"
)

// at finds a volume that is at a path.
func (n *node) at(name, path string) (*volume, error) {
	if name == "" || path == "" {
		return nil, invalid("want a volume id and a path")
	}
	v, err := n.volumes.get(name)
	if err != nil {
		return nil, err
	}
	its, err := loopdev.Of(n.volumes.data(name))
	if err != nil {
		return nil, err
	}
	number, err := deviceAt(path)
	if err != nil || !slices.ContainsFunc(its, func(d loopdev.Device) bool { return d.Number == number }) {
		return nil, status.Errorf(codes.NotFound, "volume %s is not at %s", name, path)
	}
	return v, nil
}

// NodeGetVolumeStats measures a volume: how full its file system is, or how large its device.
func (n *node) NodeGetVolumeStats(
	_ context.Context, r *spec.NodeGetVolumeStatsRequest,
) (*spec.NodeGetVolumeStatsResponse, error) {
	v, err := n.at(r.GetVolumeId(), r.GetVolumePath())
	if err != nil {
		return nil, err
	}
	if isDevice(r.GetVolumePath()) {
		return &spec.NodeGetVolumeStatsResponse{Usage: []*spec.VolumeUsage{
			{Unit: spec.VolumeUsage_BYTES, Total: v.Bytes},
		}}, nil
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(r.GetVolumePath(), &fs); err != nil {
		return nil, fmt.Errorf("measure %s: %w", r.GetVolumePath(), err)
	}
	return &spec.NodeGetVolumeStatsResponse{Usage: []*spec.VolumeUsage{
		{
			Unit: spec.VolumeUsage_BYTES, Total: int64(fs.Blocks) * fs.Bsize,
			Available: int64(fs.Bavail) * fs.Bsize, Used: int64(fs.Blocks-fs.Bfree) * fs.Bsize,
		},
		{Unit: spec.VolumeUsage_INODES, Total: int64(fs.Files), Available: int64(fs.Ffree), Used: int64(fs.Files - fs.Ffree)},
	}}, nil
}

// NodeExpandVolume makes a mounted file system as large as its device.
func (n *node) NodeExpandVolume(ctx context.Context, r *spec.NodeExpandVolumeRequest) (*spec.NodeExpandVolumeResponse, error) {
	v, err := n.at(r.GetVolumeId(), r.GetVolumePath())
	if err != nil {
		return nil, err
	}
	if isDevice(r.GetVolumePath()) {
		return &spec.NodeExpandVolumeResponse{CapacityBytes: v.Bytes}, nil
	}
	return &spec.NodeExpandVolumeResponse{CapacityBytes: v.Bytes}, grow(ctx, r.GetVolumePath())
}
