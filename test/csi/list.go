package csi

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
)

// ListVolumes lists volumes, and the nodes that have them.
func (c *controller) ListVolumes(_ context.Context, r *spec.ListVolumesRequest) (*spec.ListVolumesResponse, error) {
	ids, err := c.volumes.list()
	if err != nil {
		return nil, err
	}
	ids, next, err := page(ids, r.GetStartingToken(), r.GetMaxEntries())
	if err != nil {
		return nil, err
	}
	reply := &spec.ListVolumesResponse{NextToken: next}
	for _, id := range ids {
		v, err := c.volumes.get(id)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was deleted meanwhile
		}
		if err != nil {
			return nil, err
		}
		reply.Entries = append(reply.Entries, &spec.ListVolumesResponse_Entry{
			Volume: &spec.Volume{VolumeId: id, CapacityBytes: v.Bytes},
			Status: &spec.ListVolumesResponse_VolumeStatus{PublishedNodeIds: slices.Sorted(maps.Keys(v.Attached))},
		})
	}
	return reply, nil
}

// ListSnapshots lists snapshots: all, those of a volume, or one.
func (c *controller) ListSnapshots(_ context.Context, r *spec.ListSnapshotsRequest) (*spec.ListSnapshotsResponse, error) {
	ids, err := c.snapshots.list()
	if err != nil {
		return nil, err
	}
	found := map[string]*snapshot{}
	for _, id := range ids {
		if r.GetSnapshotId() != "" && r.GetSnapshotId() != id {
			continue
		}
		s, err := c.snapshots.get(id)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was deleted meanwhile
		}
		if err != nil {
			return nil, err
		}
		if r.GetSourceVolumeId() == "" || r.GetSourceVolumeId() == s.Volume {
			found[id] = s
		}
	}
	ids, next, err := page(slices.Sorted(maps.Keys(found)), r.GetStartingToken(), r.GetMaxEntries())
	if err != nil {
		return nil, err
	}
	reply := &spec.ListSnapshotsResponse{NextToken: next}
	for _, id := range ids {
		reply.Entries = append(reply.Entries, &spec.ListSnapshotsResponse_Entry{Snapshot: found[id].answer(id)})
	}
	return reply, nil
}
