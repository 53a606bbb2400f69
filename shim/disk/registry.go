package disk

import (
	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// registry are the ways to attach a registry disk.
type registry struct {
	overlay  overlay
	raw      raw
	readOnly readOnly
	served   overISCSI
}

func newRegistry(o Options, files folders) registry {
	r := registry{
		overlay:  overlay{images: o.Unpacker, overlays: o.Unpacker, files: files},
		raw:      raw{images: o.Unpacker, expander: o.Expander, files: files, groups: o.Groups},
		readOnly: readOnly{images: o.Unpacker},
	}
	r.served = overISCSI{
		raw: r.raw, overlay: r.overlay, images: o.Unpacker, views: o.views,
		targets: o.ISCSI.Daemon, key: o.ISCSI.Key, secrets: o.ISCSI.Secrets, groups: o.Groups,
	}
	return r
}

// kind returns how a registry disk is attached, by its mode.
func (r registry) kind(k Disk) kind {
	switch {
	case k.Mode == vmspec.ModeISCSI:
		return r.served
	case k.ReadOnly && (k.Mode == vmspec.ModeFile || k.image().Format == imageunpack.Raw):
		return r.readOnly
	case k.Mode == vmspec.ModeRaw:
		return r.raw
	}
	return r.overlay
}
