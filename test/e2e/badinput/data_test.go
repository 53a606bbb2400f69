package badinput

import (
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc/status"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// testDisks has what is no disk be a machine's first disk, in each mode; a data disk beside a sound one,
// in each mode; and what a volume is to become. Whatever the mode, each is answered the same, and leaves
// nothing, on the volume neither.
func (s *suite) testDisks(t *testing.T, group string, cases []badCase) {
	t.Helper()
	volume := t.TempDir()
	before := s.census(t)
	modes := map[vmspec.Mode]*pod{}
	for _, mode := range []vmspec.Mode{vmspec.ModeFile, vmspec.ModeRaw, vmspec.ModeISCSI} {
		modes[mode] = s.run(t, string(mode), annotated(vmspec.AnnotationDiskMode, string(mode)))
	}
	onVolume := s.run(t, "volume", annotated(vmspec.AnnotationDiskOrigin, "root=data"))
	first, data := readAnswers(t, group), readAnswers(t, "data")
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			ref := s.push(t, strings.ReplaceAll(c.name, " ", "-"), c.build(t))
			reply, err := s.imgs.PullImage(t.Context(), &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
			assert.NilError(t, err)
			asData := &runtimeapi.Mount{ContainerPath: "/disks/data", Readonly: true, Image: &runtimeapi.ImageSpec{Image: reply.ImageRef}}
			before := s.census(t)
			for _, p := range modes {
				_, err := s.create(t, p, newContainer(ref, c.container))
				first.check(t, c, err)
				_, err = s.create(t, p, newContainer(s.disk, mounting(asData)))
				data.check(t, c, err)
			}
			_, err = s.create(t, onVolume, newContainer(s.disk, mounting(asData,
				&runtimeapi.Mount{ContainerPath: "/volumes/root", HostPath: volume})))
			said := status.Convert(err) // the answer has the name
			data.check(t, c, status.Error(said.Code(), strings.Replace(said.Message(), `disk "root"`, `disk "data"`, 1)))
			s.wantNothingSince(t, before)
			if left, err := os.ReadDir(volume); err != nil || len(left) > 0 {
				t.Errorf("on the volume is left %v, %v", left, err)
			}
		})
	}
	s.remove(t, onVolume)
	for _, p := range modes {
		s.remove(t, p)
	}
	s.wantNothingSince(t, before)
	if golden.FlagUpdate() {
		first.write(t)
		data.write(t)
	}
}

func mounting(mounts ...*runtimeapi.Mount) func(*runtimeapi.ContainerConfig) {
	return func(c *runtimeapi.ContainerConfig) { c.Mounts = append(c.Mounts, mounts...) }
}
