package netsetup

import "context"

// Watch waits until the guest's dnsmasq has ended, or ctx has. The error is nil when dnsmasq has ended
// or did not run. The caller then starts it again with [Setup.Serve]: the guest's lease, which never
// expires, stays valid. Watch takes no thread while it waits.
func (s *Setup) Watch(ctx context.Context, p Plan) error {
	server := s.server(p)
	pid, err := server.Find()
	if err != nil || pid == 0 {
		return err
	}
	return server.Wait(ctx, pid)
}
