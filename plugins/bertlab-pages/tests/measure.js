// Says what of a page, shown in frames, is cut off, covered or pale.
const light = (colour) => {
  const [r, g, b] = colour.match(/[\d.]+/g).map((x) => (x / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
function measure(frame, name) {
  const found = [], page = frame.contentDocument, width = frame.clientWidth;
  const say = (what, text) => found.push(`${name}: ${what}: ${text.trim().slice(0, 60)}`);
  for (const each of page.querySelectorAll("details")) each.open = true;
  if (page.scrollingElement.scrollWidth > width) say("the page is wider", `${page.scrollingElement.scrollWidth}`);
  const boxes = [];
  const ground = light(frame.contentWindow.getComputedStyle(page.body).backgroundColor);
  const walker = page.createTreeWalker(page.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const parent = node.parentElement;
    if (!node.textContent.trim() || parent.closest("script, style, title, option, textarea")) continue;
    const range = page.createRange();
    range.selectNodeContents(node);
    const style = frame.contentWindow.getComputedStyle(parent);
    const ink = light(parent.closest("svg") ? style.fill : style.color);
    const contrast = (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05);
    let isShown = false;
    for (const box of range.getClientRects()) {
      if (box.width < 1 || box.height < 1) continue;
      isShown = true;
      const inside = parent.closest("[tabindex].scroll");  // may be scrolled, and says so
      if (!inside && (box.left < -1 || box.right > width + 1)) say("cut off", node.textContent);
      for (let each = parent; each && !inside; each = each.parentElement) {
        const clips = frame.contentWindow.getComputedStyle(each).overflowX !== "visible";
        const edge = each.getBoundingClientRect();
        if (clips && each !== page.body && each !== page.documentElement && (box.right > edge.right + 1.5 || box.left < edge.left - 1.5)) {
          say("cut off by what it is in", node.textContent);
          break;
        }
      }
      boxes.push({ box, parent, text: node.textContent });
    }
    if (isShown && contrast < 3 && !parent.closest("td[style], button, mark")) say(`contrast ${contrast.toFixed(1)}`, node.textContent);
  }
  boxes.sort((a, b) => a.box.top - b.box.top);
  boxes.forEach((one, place) => {
    for (const other of boxes.slice(place + 1)) {
      if (other.box.top > one.box.bottom - 4) break;
      const across = Math.min(one.box.right, other.box.right) - Math.max(one.box.left, other.box.left);
      const down = Math.min(one.box.bottom, other.box.bottom) - Math.max(one.box.top, other.box.top);
      if (across > 2 && down > 4) say("covered", `${one.text.trim()} | ${other.text.trim()}`);
    }
  });
  return found;
}
addEventListener("load", () => setTimeout(() => {
  const found = [...document.querySelectorAll("iframe")].flatMap((each) => measure(each, each.name));
  document.getElementById("found").textContent = JSON.stringify(found);
}, WAIT));
