package netsetup

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// disableTxChecksum makes the kernel compute the checksums of packets that it sends over link, in
// the thread's own network namespace (ETHTOOL_STXCSUM; netdevice(7), linux/ethtool.h).
func disableTxChecksum(link string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open socket for checksum offload of %s: %w", link, err)
	}
	defer unix.Close(fd)

	value := struct{ cmd, data uint32 }{cmd: unix.ETHTOOL_STXCSUM}
	request := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte // struct ifreq is that much longer
	}{data: unsafe.Pointer(&value)}
	copy(request.name[:unix.IFNAMSIZ-1], link)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL,
		uintptr(unsafe.Pointer(&request)))
	runtime.KeepAlive(&value)
	if errno != 0 {
		return fmt.Errorf("switch checksum offload of %s off: %w", link,
			os.NewSyscallError("ioctl", errno))
	}
	return nil
}
