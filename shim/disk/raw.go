package disk

import (
	"context"
	"os"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/imageunpack/expand"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// raw is a registry disk that is expanded to a raw file in the container's folder.
type raw struct {
	passive
	images   imageOpener
	expander expander
	files    folders
	groups   groups
}

func (raw) file(k Disk) string {
	if k.Source == vmspec.SourceImage {
		return "disk.raw"
	}
	return "disk-" + k.Name + ".raw"
}

func (r raw) create(ctx context.Context, k Disk) error {
	image := k.image()
	f, err := r.images.Open(ctx, image, image.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	return r.expander.Expand(ctx, expand.Source{
		File: f, Format: string(image.Format), Size: image.VirtualSize, Needs: image.Content,
		Key: keyOf(image), UID: k.VM.Domain.UID, Started: joining(r.groups, k), Namespace: k.podNamespace(),
	}, r.writable(k), k.progress)
}

func (raw) takesTime(Disk) bool { return true }

// recover has the expander know that the file may be a clone.
func (r raw) recover(k Disk, _ bool) error {
	r.expander.Hold(keyOf(k.image()), r.writable(k))
	return nil
}

func keyOf(image imageunpack.Disk) expand.Key {
	return expand.Key{Image: image.ImageID, Path: image.Path}
}

func (r raw) attach(_ context.Context, k Disk) (map[string][]*os.File, error) {
	f, err := openWhole(r.writable(k), os.O_RDWR, k.image().VirtualSize)
	if err != nil {
		return nil, err
	}
	return map[string][]*os.File{k.group("top"): {f}}, nil
}

func (r raw) describe(k Disk) domain.Disk {
	return domain.Disk{Layers: []domain.Layer{
		{Format: string(imageunpack.Raw), Path: r.writable(k), FDGroup: k.group("top"), ReadOnly: k.ReadOnly},
	}}
}

func (r raw) writable(k Disk) string { return r.files.path(k, r.file(k)) }
