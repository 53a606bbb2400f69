package badinput

import (
	"archive/tar"

	"google.golang.org/grpc/codes"

	"github.com/nodevirt/nodevirt/test/images"
)

// layerCases are disks that a higher layer takes away or puts something in place of, and links
// between an image's files.
func layerCases() []badCase {
	refused := func(name string, lower []images.File, above ...images.File) badCase {
		return badCase{
			name: name, at: atCreate, files: lower, above: [][]images.File{above}, code: codes.InvalidArgument,
			pod: annotated("nodevirt.io/vm-container", "vm"),
		}
	}
	disk, two := []images.File{raw("disk")}, folder(raw("a.img"))
	unpullable := func(name string, code codes.Code, files ...images.File) badCase {
		return badCase{name: name, at: atPull, files: files, code: code}
	}
	return []badCase{
		refused("disk whited out", disk, images.File{Name: ".wh.disk"}),
		refused("file whited out", two, images.File{Name: "disk/.wh.a.img"}),
		refused("folder made opaque", two, images.File{Name: "disk/.wh..wh..opq"}),
		refused("whiteout of overlayfs itself", disk, images.File{Name: "disk", Type: tar.TypeChar}),
		refused("replaced by a pipe", disk, images.File{Name: "disk", Type: tar.TypeFifo}),
		refused("replaced by a link", two, images.File{Name: "disk", Link: "/etc"}),
		refused("links in a circle", two, images.File{Name: "disk", Link: "b"}, images.File{Name: "b", Link: "disk"}),
		refused("two names of one file", folder(raw("a.img"),
			images.File{Name: "b.img", Type: tar.TypeLink, Link: "disk/a.img"})),
		refused("link to a device", []images.File{{Name: "dev/sda", Type: tar.TypeBlock}},
			images.File{Name: "disk", Link: "dev/sda"}),
		refused("hard link to a device", []images.File{
			{Name: "dev/sda", Type: tar.TypeBlock}, {Name: "disk", Type: tar.TypeLink, Link: "dev/sda"},
		}),
		unpullable("hard link to the node", codes.Unknown,
			images.File{Name: "disk", Type: tar.TypeLink, Link: "../../../../../../../../etc/shadow"}),
		unpullable("hard link to nothing", codes.Unknown,
			images.File{Name: "disk", Type: tar.TypeLink, Link: "nothing"}),
	}
}
