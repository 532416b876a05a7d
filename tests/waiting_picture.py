"""Draws who waits where over time."""


def waiting_picture(title: str, samples: list[tuple[float, int, int, int]]) -> str:
    """An SVG of samples, each the time in seconds, and how many hold, wait in a worker, and are parked."""
    width, height, left, top = 720, 260, 60, 40
    end, most = samples[-1][0], max(hot + cold for _, _, hot, cold in samples)

    def area(values: list[tuple[float, float]], colour: str) -> str:
        points = [
            f"{left + time / end * width:.1f},{top + height - value / most * height:.1f}"
            for time, value in values
        ]
        corners = f"{left},{top + height} {' '.join(points)} {left + width},{top + height}"
        return f'<polygon points="{corners}" fill="{colour}"/>'

    cold = area([(time, hot + cold) for time, _, hot, cold in samples], "#9db8d9")
    hot = area([(time, hot) for time, _, hot, _ in samples], "#d9822b")
    legend = [("#9db8d9", "parked: between two attempts"), ("#d9822b", "waiting in a worker")]
    keys = "".join(
        f'<rect x="{left + 230 * i}" y="14" width="12" height="12" fill="{colour}"/>'
        f'<text x="{left + 18 + 230 * i}" y="25">{text}</text>'
        for i, (colour, text) in enumerate(legend)
    )
    bottom, scale = top + height, 'text-anchor="end"'
    marks = "".join(
        f'<text x="{left + width * part / 4:.0f}" y="{bottom + 18}" text-anchor="middle">'
        f"{end * part / 240:.0f} min</text>"
        for part in range(5)
    )
    marks += f'<text x="{left - 8}" y="{top + 5}" {scale}>{most}</text>'
    marks += f'<text x="{left - 8}" y="{bottom}" {scale}>0</text>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 40} {top + height + 30}" '
        f'font-family="sans-serif" font-size="13"><rect width="100%" height="100%" fill="#fff"/>'
        f"<title>{title}</title>"
        f"{cold}{hot}{keys}{marks}</svg>\n"
    )
