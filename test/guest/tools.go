package guest

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/nodevirt/nodevirt/test/guest/cache"
	"github.com/nodevirt/nodevirt/test/guest/deb"
)

// toolsFolder is the folder of the boot disk with programs that take no memory of a guest's until they run.
const toolsFolder = "tools"

// tool is a program of Debian's, and the packages that hold it and the libraries that are missing in the guest.
type tool struct {
	programs []string // and libraries that it loads by their names
	packages []string
}

var fedoraTools = []tool{
	{[]string{"tpm2", "libtss2-tcti-device.so.0"}, []string{
		"tpm2-tools", "libbrotli1", "libcurl3-gnutls", "libffi8", "libgmp10", "libgnutls30", "libhogweed6", "libidn2-0", "libldap-2.5-0",
		"libnettle8", "libnghttp2-14", "libp11-kit0", "libpsl5", "librtmp1", "libsasl2-2", "libssh2-1", "libtasn1-6", "libtss2-esys-3.0.2-0",
		"libtss2-mu0", "libtss2-rc0", "libtss2-sys1", "libtss2-tcti-device0", "libtss2-tctildr0", "libunistring2",
	}},
	{[]string{"stress-ng"}, []string{
		"stress-ng", "libapparmor1", "libdrm2", "libegl1", "libexpat1", "libffi8", "libgbm1", "libgles2", "libglvnd0", "libipsec-mb1",
		"libjpeg62-turbo", "libjudydebian1", "libkmod2", "libsctp1", "libwayland-server0", "libxxhash0",
	}},
}

// tpmPrograms are names of tpm2-tools' one program.
var tpmPrograms = []string{
	"tpm2_create", "tpm2_createprimary", "tpm2_evictcontrol", "tpm2_load", "tpm2_nvdefine", "tpm2_nvread", "tpm2_nvwrite",
	"tpm2_pcrextend", "tpm2_pcrread", "tpm2_unseal",
}

// tools returns the files of programs, and of libraries that a guest does not have, by their names on its disk.
func tools(ctx context.Context, o Options, guest tinyVariant) (map[string]string, error) {
	var packages []string
	for _, t := range fedoraTools {
		packages = append(packages, t.packages...)
	}
	found, err := deb.Resolve(ctx, o.Packages(), append(packages, guest.packages...)...)
	if err != nil {
		return nil, err
	}
	key := slices.Clone(guest.programs)
	for _, p := range found {
		key = append(key, p.Key())
	}
	dir, err := cache.Dir(ctx, o.CacheDir(), "tools", cache.Key(key...), func(tmp string) error {
		return writeTools(ctx, o, guest, tmp)
	})
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for _, e := range entries {
		files[toolsFolder+"/"+e.Name()] = filepath.Join(dir, e.Name())
	}
	return files, nil
}

func writeTools(ctx context.Context, o Options, guest tinyVariant, dir string) error {
	o.step("guest: download tpm2-tools and stress-ng")
	has, err := Programs(ctx, o, guest.packages, guest.programs...)
	if err != nil {
		return err
	}
	files := map[string][]byte{}
	for _, t := range fedoraTools {
		p, err := Programs(ctx, o, slices.Concat(t.packages, guest.packages), t.programs...)
		if err != nil {
			return err
		}
		maps.Copy(files, p.Programs)
		maps.Copy(files, p.Libraries)
	}
	for name, data := range files {
		if has.Libraries[name] != nil {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o755); err != nil {
			return err
		}
	}
	return nil
}
