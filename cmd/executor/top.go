package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/executor"
	"github.com/toolbus/toolbus/internal/cli"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

func (p *program) top() *cobra.Command {
	var once, asJSON bool
	c := &cobra.Command{
		Use:   "top",
		Short: "Watch tools, workers, executors and circuit breakers",
		Long: `Watch tools, workers, executors and circuit breakers: rates and latencies of the last five seconds, over all executors.

It only listens, to what everybody is told once a second, and needs no right to publish. Where there is no terminal it
prints once what it has heard in some seconds.`,
		Example: `  executor top
  executor top --once
  executor top --json | jq '.tools[] | select(.breaker != "closed")'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conn, err := p.connect(cmd.Context(), "top")
			if err != nil {
				return err
			}
			defer conn.Close()
			e := &ear{bus: conn, fleet: newFleet()}
			if err := e.listen(); err != nil {
				return errCode{cli.ExitUnavailable, err}
			}
			if p.interactive() && !once && !asJSON {
				return p.watchTop(cmd.Context(), e.look)
			}
			return p.printTop(cmd.Context(), e.look, asJSON)
		},
	}
	c.Flags().BoolVar(&once, "once", false, "print once what was heard in some seconds, as plain text")
	c.Flags().BoolVar(&asJSON, "json", false, "the same as JSON")
	return c
}

// interactive says that there is a terminal both to show on and to read keys from.
func (p *program) interactive() bool {
	keys, ok := p.in.(*os.File)
	if !ok {
		return false
	}
	_, _, in := terminal(keys)
	_, _, out := terminal(p.out)
	return in && out
}

// An ear folds what it hears on the bus into a fleet.
type ear struct {
	bus *bus.Conn

	mu    sync.Mutex
	fleet *fleet
}

// listen subscribes. The subscriptions end with the connection.
func (e *ear) listen() error {
	s := e.bus.Subjects()
	for subject, take := range map[string]func(now time.Time, token string, data []byte){
		s.Heartbeats(): e.beat, s.Event("executor.*"): e.presence, s.Event("breaker"): e.changed,
	} {
		_, err := e.bus.Subscribe(subject, "", func(m *nats.Msg) {
			take(time.Now(), m.Subject[strings.LastIndexByte(m.Subject, '.')+1:], m.Data)
		})
		if err != nil {
			return fmt.Errorf("listen on %s: %w", subject, err)
		}
	}
	return nil
}

func (e *ear) look(now time.Time) topView {
	e.mu.Lock()
	defer e.mu.Unlock()
	v := e.fleet.look(now)
	v.Away = !e.bus.Connected()
	return v
}

// What is malformed, too large, absurd or speaks for another is not heard.
const (
	maxBeat   = 64 << 10
	maxChange = 16 << 10
	absurd    = 1e15 // no count of ours and no time in milliseconds
)

func (e *ear) beat(now time.Time, token string, data []byte) {
	var hb wire.Heartbeat
	if len(data) > maxBeat || wire.Decode(data, &hb) != nil || hb.Check() != nil || hb.Worker != token {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fleet.beat(now, hb)
}

func (e *ear) presence(now time.Time, token string, data []byte) {
	p, ok := readPresence(data)
	if !ok || p.Executor != token {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fleet.presence(now, p)
}

// readPresence is false where an executor of ours would not say such a thing.
func readPresence(data []byte) (p executor.Presence, ok bool) {
	if len(data) > executor.MaxPresence || json.Unmarshal(data, &p) != nil || tool.CheckID(p.Executor) != nil || !counts(int64(p.InFlight), int64(p.Turns), int64(p.MoreTools)) {
		return p, false
	}
	for _, t := range p.Tools {
		if tool.CheckName(t.Tool) != nil || !counts(int64(t.InFlight), t.Attempts, t.Errors, t.Refused) || !(t.TookMs >= 0 && t.TookMs < absurd) ||
			t.Breaker != "" && badness(t.Breaker) < 0 {
			return p, false
		}
	}
	return p, true
}

func counts(ns ...int64) bool {
	for _, n := range ns {
		if n < 0 || n > absurd {
			return false
		}
	}
	return true
}

func (e *ear) changed(now time.Time, _ string, data []byte) {
	var ev wire.Event
	if len(data) > maxChange || wire.Decode(data, &ev) != nil || ev.Type != wire.BreakerChanged || badness(ev.BreakerState) < 0 {
		return
	}
	name, part, _ := strings.Cut(ev.Tool, ".") // a part of a tool may have a breaker of its own
	if tool.CheckName(name) != nil || part != "" && tool.CheckID(part) != nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fleet.changed(now, ev)
}

// printTop prints what is heard until each executor has spoken twice: a rate takes two words.
func (p *program) printTop(ctx context.Context, look func(time.Time) topView, asJSON bool) error {
	select {
	case <-time.After(2 * listenFor):
	case <-ctx.Done():
	}
	v := look(time.Now())
	if asJSON {
		return cli.PrintJSON(p.out, v)
	}
	s := topScreen{width: columns(p.out)}
	for _, line := range s.draw(v) {
		fmt.Fprintln(p.out, line)
	}
	if len(v.Executors)+len(v.Workers) == 0 {
		fmt.Fprintln(p.err, "nobody was heard: start an executor with `executor serve` or `executor dev`")
	}
	return nil
}

// watchTop shows the fleet until the user has seen enough.
func (p *program) watchTop(ctx context.Context, look func(time.Time) topView) error {
	m := topModel{look: look, view: look(time.Now()), screen: topScreen{paint: paint}}
	m.screen.width, m.screen.height, _ = terminal(p.out)
	return runTop(ctx, m, tea.WithInput(p.in), tea.WithOutput(p.out))
}

// runTop runs the screen, and a clock beside it that ends with it.
func runTop(ctx context.Context, m topModel, opts ...tea.ProgramOption) error {
	shown, end := context.WithCancel(ctx)
	screen := tea.NewProgram(m, append(opts, tea.WithContext(shown), tea.WithoutSignalHandler())...)
	var clock sync.WaitGroup
	clock.Go(func() {
		t := time.NewTicker(500 * time.Millisecond)
		defer t.Stop()
		for {
			select {
			case now := <-t.C:
				screen.Send(topTick(now))
			case <-shown.Done():
				return
			}
		}
	})
	_, err := screen.Run()
	end() // of a screen that could not begin, too: Send waits for it
	clock.Wait()
	if ctx.Err() != nil && errors.Is(err, tea.ErrProgramKilled) {
		return nil
	}
	return err
}

// A topModel is what the user of the screen did. It is changed by messages alone.
type topModel struct {
	look   func(time.Time) topView
	view   topView
	screen topScreen
}

// A topTick is the time, twice a second.
type topTick time.Time

// Init asks for nothing.
func (topModel) Init() tea.Cmd { return nil }

// Update is the model after a message.
func (m topModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case topTick:
		m.view = m.look(time.Time(msg))
		m.screen.from = min(m.screen.from, m.rows())
	case tea.WindowSizeMsg:
		m.screen.width, m.screen.height = max(1, msg.Width), max(1, msg.Height)
	case tea.KeyPressMsg:
		return m.key(msg.String())
	}
	return m, nil
}

func (m topModel) key(key string) (tea.Model, tea.Cmd) {
	s := &m.screen
	switch key {
	case "q", "ctrl+c":
		return m, tea.Quit
	case "s":
		s.sort, s.from = (s.sort+1)%len(topSorts), 0
	case "b":
		s.breakers, s.from = !s.breakers, 0
	case "up", "k":
		s.from--
	case "down", "j":
		s.from++
	case "pgup":
		s.from -= s.height / 2
	case "pgdown", "space":
		s.from += s.height / 2
	case "home":
		s.from = 0
	case "end":
		s.from = m.rows()
	}
	s.from = max(0, min(s.from, m.rows()))
	return m, nil
}

// rows is how far one can scroll.
func (m topModel) rows() int { return max(0, m.screen.scrollable(m.view)) }

// View is the screen as it stands.
func (m topModel) View() tea.View {
	s := m.screen
	v := tea.NewView(strings.Join(s.draw(m.view), "\n"))
	v.AltScreen, v.WindowTitle = true, "executor top"
	return v
}

// paint gives a line its colour. Bubble Tea leaves out what the terminal cannot show, or its user does not want.
func paint(s shade, line string) string {
	style := lipgloss.NewStyle()
	switch s {
	case heading:
		style = style.Bold(true)
	case warning:
		style = style.Foreground(lipgloss.Yellow)
	case alarm:
		style = style.Bold(true).Foreground(lipgloss.Red)
	case faint:
		style = style.Faint(true)
	case plain:
	}
	return style.Render(line)
}
