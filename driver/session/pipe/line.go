// SPDX-License-Identifier: MPL-2.0

package pipe

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/botscreen/botscreen/driver/session/dialhome"
)

const (
	// queuedPackets is how far whoever a half speaks to may lag behind before its
	// connection is given up.
	queuedPackets = 128
	// maxFile bounds a file that rides in a packet, in bytes: the plan is the longest.
	maxFile = 16 << 20
)

var errTooLong = fmt.Errorf("a file of more than %d bytes rides in a packet", maxFile)

// line is one connection of this half, to the session or to the supervisor, and the link
// that it is on the pipe.
type line struct {
	m    *mux
	link uint32
	conn *dialhome.Conn
	// tells says that this is the supervisor's side, which hears of a terminal's size.
	tells bool
	// judge may change what comes from the other half before it is passed on, and outgoing
	// what goes there.
	judge    func(*dialhome.Packet) error
	outgoing func(*dialhome.Packet, []*dialhome.Descriptor) error
	takes    func(shape) bool // what may ride in a packet from the other half

	queue chan parcel
	gone  chan struct{} // closed when nothing is passed on any more

	mu     sync.Mutex        // guards all below
	blanks map[uint64]*blank // files to be filled before an answer, by its id
}

// parcel is a packet from the other half with what rides in it, in its order.
type parcel struct {
	packet  dialhome.Packet
	shapes  []shape
	streams []*stream
}

// blank is a file that is filled before the answer to the request it rode in.
type blank struct {
	stream *stream
	end    *end
}

func newLine(m *mux, link uint32, conn *dialhome.Conn) *line {
	return &line{
		m: m, link: link, conn: conn, queue: make(chan parcel, queuedPackets), gone: make(chan struct{}),
		blanks:   map[uint64]*blank{},
		judge:    func(*dialhome.Packet) error { return nil },
		outgoing: func(*dialhome.Packet, []*dialhome.Descriptor) error { return nil },
		takes:    func(shape) bool { return true },
	}
}

// serve carries packets both ways until the local connection ends.
func (l *line) serve() error {
	go l.deliverAll()
	for {
		packet, passed, err := l.conn.Receive()
		if err == nil {
			err = l.forward(packet, passed)
		}
		if err != nil {
			_ = l.conn.Close()
			close(l.gone)
			l.dropBlanks()
			return err
		}
	}
}

// forward sends a packet of the local connection through the pipe. It owns what was passed.
func (l *line) forward(packet dialhome.Packet, passed []*dialhome.Descriptor) error {
	defer func() { dialhome.CloseAll(passed) }() // those that were not taken over
	if err := l.outgoing(&packet, passed); err != nil {
		return err
	}
	if packet.Err != nil {
		dialhome.CloseAll(passed)
		passed = nil
	}
	if err := l.returnBlank(packet); err != nil {
		return err
	}
	var rides []riding
	var starts []func()
	for _, d := range passed {
		ride, start, err := l.ride(packet, d)
		if err != nil {
			return err
		}
		rides, starts = append(rides, ride), append(starts, start)
	}
	packet.V = dialhome.Version
	payload := appendPacket(nil, rides, dialhome.Encode(packet))
	if len(payload) > maxPayload {
		return fmt.Errorf("forward packet: %w", dialhome.ErrTooLong)
	}
	if err := l.m.send(frame{kindPacket, l.link, payload}); err != nil {
		return err
	}
	for _, start := range starts {
		start() // after the packet: before it the other half knows of no stream
	}
	return nil
}

// ride makes a stream of a descriptor; start begins to carry it.
func (l *line) ride(packet dialhome.Packet, d *dialhome.Descriptor) (riding, func(), error) {
	as, err := shapeOf(d.FD(), packet.Op == dialhome.OpReadClipboard)
	if err != nil {
		return riding{}, nil, err
	}
	e, err := adopt(d, as)
	if err != nil {
		return riding{}, nil, err
	}
	s, err := l.m.open()
	if err != nil {
		_ = e.file.Close()
		return riding{}, nil, err
	}
	start := func() { l.m.run(s, e, l.tells) }
	if as == shapeBlank {
		l.keepBlank(packet.ID, &blank{s, e})
		start = func() {}
	}
	return riding{as, s.id}, start, nil
}

// accept takes a packet from the other half; it is passed on in its order.
func (l *line) accept(f frame) error {
	rides, packet, err := parsePacket(f.payload)
	if err != nil {
		return err
	}
	p := parcel{packet: packet}
	for _, r := range rides {
		if !l.takes(r.shape) {
			return &brokenError{"a descriptor of a kind that never comes from there"}
		}
		s, err := l.m.accept(r.stream)
		if err != nil {
			return err
		}
		p.shapes, p.streams = append(p.shapes, r.shape), append(p.streams, s)
	}
	select {
	case l.queue <- p:
	case <-l.gone:
		p.abort(l.m)
	default:
		p.abort(l.m)
		_ = l.conn.Close() // whoever is there takes nothing
	}
	return nil
}

func (p parcel) abort(m *mux) {
	for _, s := range p.streams {
		m.abort(s)
	}
}

func (l *line) deliverAll() {
	for {
		select {
		case p := <-l.queue:
			if err := l.deliver(p); err != nil {
				p.abort(l.m)
				_ = l.conn.Close()
			}
		case <-l.gone:
			for {
				select {
				case p := <-l.queue:
					p.abort(l.m)
				default:
					return
				}
			}
		}
	}
}

// deliver passes a packet on to the local connection, with what stands for what rode in it.
func (l *line) deliver(p parcel) error {
	if err := l.judge(&p.packet); err != nil {
		return err
	}
	if err := l.fillBlank(p.packet); err != nil {
		return err
	}
	var far []*os.File
	var starts []func()
	defer func() { closeFiles(far) }()
	for i, s := range p.streams {
		f, start, err := l.land(p.packet.ID, p.shapes[i], s)
		if err != nil {
			return err
		}
		if f != nil {
			far = append(far, f)
		}
		starts = append(starts, start)
	}
	if err := l.conn.Send(p.packet, far...); err != nil {
		return err
	}
	for _, start := range starts {
		start()
	}
	return nil
}

// land makes the local file that stands for a stream.
func (l *line) land(id uint64, as shape, s *stream) (far *os.File, start func(), err error) {
	if as == shapeFile {
		far, err = l.collect(s)
		return far, func() {}, err
	}
	far, e, err := imitate(as)
	if err != nil {
		return nil, nil, err
	}
	if as != shapeBlank {
		return far, func() { l.m.run(s, e, l.tells) }, nil
	}
	l.keepBlank(id, &blank{s, e})
	return far, func() {}, nil
}

// collect reads a file that rides in a packet to its end.
func (l *line) collect(s *stream) (*os.File, error) {
	f, err := memory()
	if err != nil {
		return nil, err
	}
	size := 0
	for {
		data, err := s.take()
		if errors.Is(err, io.EOF) {
			l.m.drop(s)
			return f, nil
		}
		if size += len(data); err == nil && size > maxFile {
			err = errTooLong
		}
		if err == nil {
			_, err = f.Write(data)
		}
		if err == nil {
			s.release(len(data))
			err = l.m.send(frame{kindCredit, s.id, number(uint32(len(data)))})
		}
		if err != nil {
			_ = f.Close()
			return nil, fmt.Errorf("take a file: %w", err)
		}
	}
}

func (l *line) keepBlank(id uint64, b *blank) {
	l.mu.Lock()
	before := l.blanks[id]
	l.blanks[id] = b
	l.mu.Unlock()
	if before != nil {
		before.close(l.m)
	}
}

// answeredBlank is the blank that a packet is the good answer to; nil: none. One whose
// request was refused is closed.
func (l *line) answeredBlank(packet dialhome.Packet) *blank {
	if packet.Op != "" || packet.ID == 0 {
		return nil
	}
	l.mu.Lock()
	b := l.blanks[packet.ID]
	delete(l.blanks, packet.ID)
	l.mu.Unlock()
	if b != nil && !packet.OK {
		b.close(l.m)
		return nil
	}
	return b
}

func (l *line) dropBlanks() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, b := range l.blanks {
		b.close(l.m)
		delete(l.blanks, id)
	}
}

func (b *blank) close(m *mux) {
	m.drop(b.stream)
	_ = b.end.file.Close()
}

// returnBlank sends what the session wrote before its answer goes. It is at most a window,
// so nobody waits for credit.
func (l *line) returnBlank(packet dialhome.Packet) error {
	b := l.answeredBlank(packet)
	if b == nil {
		return nil
	}
	defer b.close(l.m)
	buffer := make([]byte, maxData)
	content := io.NewSectionReader(b.end.file, 0, window)
	for {
		n, err := content.Read(buffer)
		if n > 0 {
			if err := l.m.send(frame{kindData, b.stream.id, buffer[:n]}); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return l.m.send(frame{kindEnd, b.stream.id, nil})
		}
		if err != nil {
			return fmt.Errorf("read what was written: %w", err)
		}
	}
}

// fillBlank writes what came before this answer: frames keep their order, so all of it is
// there.
func (l *line) fillBlank(packet dialhome.Packet) error {
	b := l.answeredBlank(packet)
	if b == nil {
		return nil
	}
	defer b.close(l.m)
	data, whole := b.stream.all()
	if !whole {
		return &brokenError{"an answer before the file that belongs to it"}
	}
	if _, err := b.end.file.WriteAt(data, 0); err != nil {
		return fmt.Errorf("fill a file: %w", err)
	}
	return nil
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}
