package domain
import ("testing";"time";"os";"os/exec";"net";"strings";"github.com/nodevirt/nodevirt/shim/vmspec")
func TestZZ(t *testing.T){ startLibvirtd(t); d:=startDriver(t); ev,_:=d.Subscribe()
 newTap(t,"vmtap0")
 for _,args:=range []string{"work","work","dopanic","dooff"} {
 g:=newGuest(t); g.Spec.Memory=128<<20
 os.Chmod(strings.TrimSuffix(g.ConsoleLog,"/console.log"),0o711)
 g.Spec.Firmware=vmspec.Firmware{UUID:"11111111-2222-4333-8444-555555555555",Serial:"S,N=1",Kernel:&vmspec.Kernel{Args:"console=ttyS0 quiet "+args}}
 g.Kernel="/tmp/dombench/vmlinuz"; g.Initrd="/tmp/dombench/initrd.gz"
 g.Spec.Interfaces = []vmspec.Interface{{Name: "default", Model: "virtio"}}
 g.NICs = []NIC{{Tap: "vmtap0", MAC: net.HardwareAddr{2, 0, 0, 0, 0, 7}, MTU: 1400}}
 t0:=time.Now(); define(t,d,g); t.Log("define", time.Since(t0)); t0=time.Now()
 pid,err:=d.Start(t.Context(),g.UUID,g.files); t.Log("start",time.Since(t0),err); t0=time.Now()
 d.Resume(t.Context(),g.UUID);t.Log("resume",time.Since(t0)); awaitLog(t,g,"GUEST-UP");  t.Log("up",time.Since(t0))
 if args=="work" { awaitLog(t,g,"WORK"); o,_:=exec.Command("virsh","-c",testURI,"qemu-monitor-command",g.Name,`{"execute":"query-uuid"}`).CombinedOutput(); t.Log(string(o))
 o,_=exec.Command("sh","-c","tr '\\0' ' ' < /proc/"+itoa(pid)+"/cmdline; ls -l /proc/"+itoa(pid)+"/fd; grep Pss: /proc/"+itoa(pid)+"/smaps_rollup; virsh -c '"+testURI+"' dommemstat "+g.Name+"; ls -la "+strings.TrimSuffix(g.ConsoleLog,"/console.log")+"; ls -laR /var/lib/libvirt/qemu/domain* /var/lib/libvirt/qemu/channel").CombinedOutput(); t.Log(string(o)) } else {
 e:=eventually(t,ev,"stop",stopped(g)); t.Log(args,e, time.Since(t0)) }
 l,_:=os.ReadFile(g.ConsoleLog); t.Log(string(l)); s,_:=d.State(t.Context(),g.UUID); t.Log(s); d.Destroy(t.Context(),g.UUID)
 }}
func itoa(i int)string{ s:=""; for i>0 {s=string(rune('0'+i%10))+s;i/=10}; return s}
