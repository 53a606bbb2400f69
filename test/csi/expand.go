package csi

import (
	"context"
	"errors"
	"os"

	spec "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodevirt/nodevirt/test/loopdev"
)

// ControllerExpandVolume makes a volume larger, attached or not. A file system is made larger by its node.
func (c *controller) ControllerExpandVolume(
	_ context.Context, r *spec.ControllerExpandVolumeRequest,
) (*spec.ControllerExpandVolumeResponse, error) {
	name := r.GetVolumeId()
	if name == "" || r.GetCapacityRange() == nil {
		return nil, invalid("want the id of a volume and a size")
	}
	release, err := c.busy.take(name)
	if err != nil {
		return nil, err
	}
	defer release()
	v, err := c.volumes.get(name)
	if err != nil {
		return nil, err
	}
	if !inRange(v.Bytes, r.GetCapacityRange()) {
		if v.Bytes, err = c.size(r.GetCapacityRange(), v.Bytes); err != nil {
			return nil, err
		}
	}
	// Again after a driver was killed meanwhile.
	if err := os.Truncate(c.volumes.data(name), v.Bytes); err != nil {
		return nil, err
	}
	its, err := loopdev.Of(c.volumes.data(name))
	for _, d := range its {
		err = errors.Join(err, d.Resize())
	}
	if err != nil {
		return nil, err
	}
	if err := c.volumes.put(name, v); err != nil {
		return nil, err
	}
	block := v.Block
	if way := r.GetVolumeCapability(); way != nil {
		block = way.GetBlock() != nil
	}
	return &spec.ControllerExpandVolumeResponse{CapacityBytes: v.Bytes, NodeExpansionRequired: !block}, nil
}
