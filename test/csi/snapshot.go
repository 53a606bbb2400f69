package csi

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// CreateSnapshot keeps a volume's content of now.
func (c *controller) CreateSnapshot(_ context.Context, r *spec.CreateSnapshotRequest) (*spec.CreateSnapshotResponse, error) {
	if r.GetName() == "" || len(r.GetName()) > maxName || r.GetSourceVolumeId() == "" {
		return nil, invalid("want a name of at most %d bytes and the id of a volume", maxName)
	}
	name := id(r.GetName())
	release, err := c.busy.take(name)
	if err != nil {
		return nil, err
	}
	defer release()
	old, err := c.snapshots.get(name)
	if err == nil {
		if old.Volume != r.GetSourceVolumeId() {
			return nil, status.Errorf(codes.AlreadyExists, "snapshot %s exists of another volume", r.GetName())
		}
		return &spec.CreateSnapshotResponse{Snapshot: old.answer(name)}, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	v, err := c.volumes.get(r.GetSourceVolumeId())
	if err != nil {
		return nil, err
	}
	if err := c.flush(r.GetSourceVolumeId()); err != nil {
		return nil, err
	}
	s := &snapshot{Name: r.GetName(), Volume: r.GetSourceVolumeId(), Bytes: v.Bytes, Taken: time.Now()}
	err = c.snapshots.create(name, s, func(data *os.File) error { return copyData(data, c.volumes.data(s.Volume), s.Bytes) })
	if err != nil {
		return nil, err
	}
	return &spec.CreateSnapshotResponse{Snapshot: s.answer(name)}, nil
}

func (s *snapshot) answer(id string) *spec.Snapshot {
	return &spec.Snapshot{
		SnapshotId: id, SourceVolumeId: s.Volume, SizeBytes: s.Bytes, CreationTime: timestamppb.New(s.Taken), ReadyToUse: true,
	}
}

// DeleteSnapshot removes a snapshot, which may be gone.
func (c *controller) DeleteSnapshot(_ context.Context, r *spec.DeleteSnapshotRequest) (*spec.DeleteSnapshotResponse, error) {
	if r.GetSnapshotId() == "" {
		return nil, invalid("no snapshot id is given")
	}
	release, err := c.busy.take(r.GetSnapshotId())
	if err != nil {
		return nil, err
	}
	defer release()
	return &spec.DeleteSnapshotResponse{}, c.snapshots.remove(r.GetSnapshotId())
}
