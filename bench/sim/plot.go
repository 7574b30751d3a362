package main

import (
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The colours can be told apart by everybody (Okabe and Ito).
var (
	black     = color.RGBA{A: 255}
	orange    = color.RGBA{R: 230, G: 159, A: 255}
	sky       = color.RGBA{R: 86, G: 180, B: 233, A: 255}
	green     = color.RGBA{G: 158, B: 115, A: 255}
	blue      = color.RGBA{G: 114, B: 178, A: 255}
	vermilion = color.RGBA{R: 213, G: 94, A: 255}
	purple    = color.RGBA{R: 204, G: 121, B: 167, A: 255}
	pale      = color.RGBA{R: 236, G: 236, B: 236, A: 255}
)

var dashed = []vg.Length{vg.Points(5), vg.Points(3)}

// drawAll draws what was asked for, as far as there is a picture of it.
func drawAll(results map[string]result, dir string) error {
	if r, ok := results["leak"]; ok {
		if err := drawLeak(r.table, filepath.Join(dir, "leaked-calls.svg")); err != nil {
			return err
		}
	}
	for _, name := range []string{"brownout", "hang"} {
		if r, ok := results[name]; ok {
			if err := drawGood(r.series, name, filepath.Join(dir, "goodput-"+name+".svg")); err != nil {
				return err
			}
		}
	}
	brown, ok := results["brownout"]
	hung, ok2 := results["hang"]
	if !ok || !ok2 {
		return nil
	}
	return drawAmplification(brown.table, hung.table, filepath.Join(dir, "amplification.svg"))
}

func picture(title, x, y string) *plot.Plot {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Title.Padding = vg.Points(8)
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = pale, pale
	p.Add(grid)
	return p
}

func line(p *plot.Plot, name string, points plotter.XYs, c color.Color, dashes []vg.Length) error {
	l, err := plotter.NewLine(points)
	if err != nil {
		return fmt.Errorf("draw %s: %w", name, err)
	}
	l.Color, l.Width, l.Dashes = c, vg.Points(1.6), dashes
	p.Add(l)
	p.Legend.Add(name, l)
	return nil
}

func drawLeak(t *table, name string) error {
	p := picture("Calls that reach a dead tool in 60 s", "executors (200 calls/s in all)", "calls")
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	var sizes []plot.Tick
	for _, r := range t.Rows {
		sizes = append(sizes, plot.Tick{Value: *r.Cells[0], Label: text(r.Cells[0])})
	}
	p.X.Tick.Marker = plot.ConstantTicks(sizes)
	p.Y.Tick.Marker = plot.TickerFunc(decades)
	for i, l := range []struct {
		name string
		c    color.Color
	}{{"no breaker", black}, {"a breaker in each executor", orange}, {"one shared breaker", blue}} {
		var points plotter.XYs
		for _, r := range t.Rows {
			points = append(points, plotter.XY{X: *r.Cells[0], Y: *r.Cells[1+i]})
		}
		if err := line(p, l.name, points, l.c, nil); err != nil {
			return err
		}
	}
	p.Y.Min, p.Y.Max = 10, 30_000
	p.Legend.YOffs = vg.Points(60)
	return save(p, 16, 10, name)
}

// decades marks 10, 100 and so on, and says them, and marks what is between.
func decades(least, most float64) []plot.Tick {
	var out []plot.Tick
	for d := math.Pow(10, math.Floor(math.Log10(least))); d <= most; d *= 10 {
		for i := 1.0; i < 10; i++ {
			v := d * i
			tick := plot.Tick{Value: v}
			if i == 1 {
				tick.Label = text(&v)
			}
			if v >= least && v <= most {
				out = append(out, tick)
			}
		}
	}
	return out
}

// drawn are the strategies that a picture of curves has room for.
var drawn = []struct {
	name   string
	c      color.Color
	dashes []vg.Length
}{
	{"no retry", black, dashed},
	{"budget as shipped", purple, nil},
	{"naive: 3 retries", vermilion, dashed},
	{"budget 10 %", orange, nil},
	{"budget + local", sky, nil},
	{"budget + shared", blue, nil},
	{"budget + shared + deadline", green, dashed},
}

func drawGood(all []series, what, name string) error {
	p := picture("Calls that succeed, around a "+what+" of ten seconds", "seconds", "calls/s")
	from, to := sickFrom.Seconds(), sickUntil.Seconds()
	const top = 1100.0
	sick, err := plotter.NewPolygon(plotter.XYs{{X: from, Y: 0}, {X: to, Y: 0}, {X: to, Y: top}, {X: from, Y: top}})
	if err != nil {
		return fmt.Errorf("draw %s: %w", name, err)
	}
	sick.Color, sick.LineStyle.Width = pale, 0
	p.Add(sick)
	for _, d := range drawn {
		for _, s := range all {
			if s.name != d.name {
				continue
			}
			var points plotter.XYs
			for t := 20; t < 90; t++ {
				points = append(points, plotter.XY{X: float64(t), Y: s.course.good[t]})
			}
			if err := line(p, s.name, points, d.c, d.dashes); err != nil {
				return err
			}
		}
	}
	p.Y.Min, p.Y.Max = 0, top
	p.X.Min, p.X.Max = 20, 118 // the legend stands on the right
	p.X.Tick.Marker = plot.TickerFunc(func(float64, float64) []plot.Tick {
		var out []plot.Tick
		for s := 20 * time.Second; s <= 90*time.Second; s += 10 * time.Second {
			out = append(out, plot.Tick{Value: s.Seconds(), Label: fmt.Sprint(s.Seconds())})
		}
		return out
	})
	p.Legend.Top = true
	p.Legend.YOffs = vg.Points(-20)
	return save(p, 18, 10, name)
}

func drawAmplification(brown, hung *table, name string) error {
	p := picture("Attempts at the tool for each call, in the ten seconds in which it is sick", "attempts for each call", "")
	const thick = 7
	var names []string
	for i, t := range []*table{hung, brown} {
		var bars plotter.Values
		names = names[:0]
		for j := len(t.Rows) - 1; j >= 0; j-- { // from below
			bars = append(bars, *t.Rows[j].Cells[0])
			names = append(names, t.Rows[j].Name)
		}
		b, err := plotter.NewBarChart(bars, vg.Points(thick))
		if err != nil {
			return fmt.Errorf("draw %s: %w", name, err)
		}
		b.Horizontal, b.LineStyle.Width = true, 0
		b.Color = []color.Color{sky, blue}[i]
		b.Offset = vg.Points(thick * (float64(i) - 0.5))
		p.Add(b)
		p.Legend.Add([]string{"hang", "brownout"}[i], b)
	}
	p.NominalY(names...)
	p.X.Min, p.X.Max = 0, 4.2
	p.Legend.YOffs = vg.Points(40)
	return save(p, 18, 9, name)
}

// save writes a picture so many centimetres wide and high.
func save(p *plot.Plot, wide, high vg.Length, name string) error {
	c := vgsvg.New(wide*vg.Centimeter, high*vg.Centimeter)
	all := draw.New(c)
	all.SetColor(color.White)
	all.Fill(all.Rectangle.Path())
	const edge = 8
	p.Draw(draw.Crop(all, vg.Points(edge), vg.Points(-edge), vg.Points(edge), vg.Points(-edge)))
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := c.WriteTo(f); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return f.Close()
}
