package badinput

import (
	"archive/tar"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/nodevirt/nodevirt/test/images"
)

// folder is an image's files with a folder /disk.
func folder(in ...images.File) []images.File {
	all := []images.File{{Name: "disk/"}}
	for _, f := range in {
		f.Name = "disk/" + f.Name
		all = append(all, f)
	}
	return all
}

func raw(name string) images.File { return images.File{Name: name, Data: make([]byte, 1024)} }

// imageCases are wrong in what an image holds in /disk.
func imageCases() []badCase {
	vmOnly := annotated("nodevirt.io/vm-container", "vm")
	refusedImage := func(name string, files ...images.File) badCase {
		return badCase{name: name, at: atCreate, files: files, code: codes.InvalidArgument}
	}
	outside := refusedImage("a path through a link", folder(images.File{Name: "a", Link: "../../../etc"}, raw("b"))...)
	outside.pod = vmiAt("/disk/a/shadow")
	absent := refusedImage("a path that is not there", folder(raw("a.img"), raw("b.img"))...)
	absent.pod = vmiAt("/disk/c.img")
	below := refusedImage("a path below a disk", raw("disk"))
	below.pod = vmiAt("/disk/c.img")
	long := refusedImage("a path of a long name", folder(raw("a.img"))...)
	long.pod = vmiAt("/disk/" + strings.Repeat("a", 256))
	belowPipe := refusedImage("a path below a pipe", images.File{Name: "disk", Type: tar.TypeFifo})
	belowPipe.pod = vmiAt("/disk/c.img")
	none := refusedImage("no disk", raw("etc/motd"))
	none.pod = vmOnly
	noLayers := refusedImage("no layers", []images.File{}...)
	noLayers.pod, noLayers.files = vmOnly, []images.File{}
	emptyFolder := refusedImage("empty folder", folder()...)
	emptyFolder.pod = vmOnly
	return []badCase{
		none, noLayers, emptyFolder, outside, absent, below, belowPipe, long,
		refusedImage("two disks", folder(raw("a.img"), raw("b.img"))...),
		refusedImage("link to the node", images.File{Name: "disk", Link: "/etc/shadow"}),
		refusedImage("link upwards", folder(images.File{Name: "a", Link: "../../../etc/shadow"})...),
		refusedImage("disk is a link upwards", images.File{Name: "disk", Link: "../../etc/shadow"}),
		refusedImage("link to a long name", images.File{Name: "disk", Link: strings.Repeat("a", 256)}),
		refusedImage("device", images.File{Name: "disk", Type: tar.TypeBlock}),
		refusedImage("pipe", images.File{Name: "disk", Type: tar.TypeFifo}),
		refusedImage("device in the folder", folder(images.File{Name: "sda", Type: tar.TypeChar})...),
	}
}
